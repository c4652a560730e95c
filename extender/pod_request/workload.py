"""A workload: a Pod by itself, or the Pods of a group. Each workload has one job in Slurm."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from extender.pod_request.job_request import Request, without_pod
from slurm_client.model import JobSpec
from wellknown.job_key import job_name

_UNLIKE = "the Pods of a gang must have equal requests"


class Workload(NamedTuple):
    """The identity of a workload. No user can choose the uid, and the key of each job of the workload
    has the uid."""

    uid: str
    namespace: str
    name: str
    created: str = ""  # creationTimestamp of the first Pod, if known
    size: int = 1  # number of Pods
    members_per_node: int | None = None
    """Number of Pods on each node; a divisor of `size`. None: Slurm packs the Pods onto as few nodes as
    possible."""

    @property
    def full_name(self) -> str:
        """Returns namespace/name."""
        return f"{self.namespace}/{self.name}"

    def request(self, of_members: Sequence[Request]) -> Request:
        """Returns the request of the whole workload. Each member must have the same request."""
        whole = of_members[0]
        for each in of_members[1:]:
            whole = self.request_with(whole, of_members[0], each)
        return self.request_with(whole, of_members[0], of_members[0])

    def request_with(self, whole: Request, first: Request, joining: Request) -> Request:
        """Returns the request `whole`, extended by one more member with the request `joining`. `first`
        is the request of the first member."""
        if self.size == 1:
            return first
        problems = dict.fromkeys((*whole.problems, *joining.problems))
        if not self.alike(first, joining):
            problems[_UNLIKE] = None
        return replace(first, job=self._job(first.job), problems=tuple(problems))

    @staticmethod
    def alike(one: Request, other: Request) -> bool:
        """Returns True if two Pods request the same."""
        return _asked(one) == _asked(other)

    def _job(self, of_member: JobSpec) -> JobSpec:
        named = replace(of_member, name=job_name(self.namespace, self.name))
        if self.members_per_node is None:
            return replace(named, tasks=self.size)
        here = self.members_per_node
        gres = tuple((name, count * here) for name, count in named.gres)
        amounts: dict[str, Any] = {"cpus": named.cpus * here, "memory_mb": named.memory_mb * here}
        return replace(named, nodes=self.size // here, gres=gres, **amounts)


def _asked(request: Request) -> Request:
    """Returns a request without the name of the Pod, to compare the requests of two Pods."""
    return replace(request, job=without_pod(request.job), problems=())
