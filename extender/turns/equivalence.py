"""Keys of Pods. Pods with equal keys are alike: if Slurm refuses the job of one Pod, Slurm also refuses
the jobs of the other Pods."""

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
"""Takes a job. Returns the fields that Slurm uses to decide which nodes fit the job."""


class Owner(NamedTuple):
    """The owner of a job: the user, and the names in Slurm's accounting that limit the job. None stands
    for Slurm's default."""

    user_id: int | None
    namespace: str | None
    """Namespace of a Pod without a Slurm user; None for other Pods. The jobs of all Pods without a user
    belong to the token's user. The namespaces are separate owners, so that one namespace does not delay
    another namespace."""
    account: str | None
    qos: str | None
    reservation: str | None

    @classmethod
    def of(cls, namespace: str, job: JobSpec) -> Self:
        """Returns the owner of a job for a Pod of this namespace. The order of names in a list ("a,b")
        does not matter. The case of an account or a QOS does not matter either, because Slurm's
        assoc_mgr ignores the case."""
        account, qos = job.account and job.account.lower(), job.qos and job.qos.lower()
        qos, reservation = (names and ordered(names) for names in (qos, job.reservation))
        return cls(job.user_id, namespace if job.user_id is None else None, account, qos, reservation)


def ordered(names: str) -> str:
    """Returns the names of a list ("a,b") in alphabetical order."""
    return ",".join(sorted(set(names.split(",")))) if "," in names else names


def window_of(record: Placeholder, view: ClusterView) -> str:
    """Returns the name of a placeholder's window (see `window`). The name is the partition. A list of
    partitions ("a,b") has its own window."""
    return ordered(view.partition_name(record.request.job.partition))


def turn_of(pod: Pod) -> Turn:
    """Returns the key that orders the Pods of an owner: first by priority, then by age."""
    return (-pod.priority, pod.created, pod.uid)


def kind_of(record: Placeholder) -> Hashable:
    """Returns the key of a Pod's class. Two Pods of one owner have equal keys if Slurm would refuse both
    for the same reason."""
    request, rejections = record.request, record.rejections
    return demand_of(request.job), request.constraints.signature, rejections.nodes, rejections.offered


def request_of(record: Placeholder) -> Hashable:
    """Returns a key that is equal for Pods with equal requests. The key has all parts of the request,
    because a job_submit plugin may reject a job for any part."""
    request = record.request
    return record.workload.namespace, without_pod(request.job), request.constraints.signature
