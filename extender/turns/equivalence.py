"""Which Pods are alike: Slurm treats equal requests equally."""

from collections.abc import Hashable
from operator import attrgetter
from typing import NamedTuple, Self

from extender.node_view.view import ClusterView
from extender.pod_request.job_request import without_pod
from extender.pod_request.pod import Pod
from extender.record.placeholder import Placeholder
from slurm_client.model import Decides, JobSpec, fields_that_decide

Turn = tuple[int, str, str]
demand_of = attrgetter(*fields_that_decide(Decides.DEMAND))
"""Returns the fields of a job by which Slurm decides whether nodes fit the job."""


class Owner(NamedTuple):
    """The user and the accounting names with the limits of a job. None is Slurm's default."""

    user_id: int | None
    namespace: str | None
    """Namespace of a Pod without a user; None for other Pods. Without a user, all jobs belong to the
    token's user, and one namespace must not hold up another namespace."""
    account: str | None
    qos: str | None
    reservation: str | None

    @classmethod
    def of(cls, namespace: str, job: JobSpec) -> Self:
        """Returns the owner of a job for a Pod of this namespace. The order of names in a list ("a,b")
        does not matter, nor does the case of an account or a QOS: Slurm's assoc_mgr ignores the case."""
        account, qos = job.account and job.account.lower(), job.qos and job.qos.lower()
        qos, reservation = (names and ordered(names) for names in (qos, job.reservation))
        return cls(job.user_id, namespace if job.user_id is None else None, account, qos, reservation)


def ordered(names: str) -> str:
    """Returns the names of a list ("a,b") in alphabetical order."""
    return ",".join(sorted(set(names.split(",")))) if "," in names else names


def window_of(record: Placeholder, view: ClusterView) -> str:
    """Returns the name of a placeholder's window: the partition. A list of partitions ("a,b") has a
    window of its own."""
    return ordered(view.partition_name(record.request.job.partition))


def turn_of(pod: Pod) -> Turn:
    """Returns the key for the order of an owner's Pods: priority, then age."""
    return (-pod.priority, pod.created, pod.uid)


def kind_of(record: Placeholder) -> Hashable:
    """Returns a key, equal for Pods of one owner if Slurm has the same reason to refuse the Pods."""
    request, rejections = record.request, record.rejections
    return demand_of(request.job), request.constraints.signature, rejections.nodes, rejections.offered


def request_of(record: Placeholder) -> Hashable:
    """Returns a key, equal for Pods with equal requests. A job_submit plugin may decide by any part."""
    request = record.request
    return record.workload.namespace, without_pod(request.job), request.constraints.signature
