"""What is placed as a whole, by one job in Slurm: a Pod by itself, or the Pods of a group."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from extender.pod_request.job_request import Request, without_pod
from wellknown.job_key import job_name

_UNLIKE = "the Pods of a group must ask for the same"


class Workload(NamedTuple):
    """Names a workload; its uid, which nobody can choose, is in the key of its jobs."""

    uid: str
    namespace: str
    name: str
    created: str = ""
    """The creationTimestamp of its first Pod; empty where that is not known."""
    size: int = 1
    """How many Pods it has."""

    @property
    def full_name(self) -> str:
        """Returns namespace/name."""
        return f"{self.namespace}/{self.name}"

    def request(self, of_members: Sequence[Request]) -> Request:
        """Returns the request of the whole workload: the same for each member, on a node of its own."""
        whole = of_members[0]
        for each in of_members[1:]:
            whole = self.request_with(whole, of_members[0], each)
        return self.request_with(whole, of_members[0], of_members[0])

    def request_with(self, whole: Request, first: Request, joining: Request) -> Request:
        """Returns the request of the whole workload with one member more. `whole` is the request without
        that member, and `first` the request of the first member."""
        if self.size == 1:
            return first
        problems = dict.fromkeys((*whole.problems, *joining.problems))
        if _asked(joining) != _asked(first):
            problems[_UNLIKE] = None
        job = replace(first.job, name=job_name(self.namespace, self.name), nodes=self.size)
        return replace(first, job=job, problems=tuple(problems))


def _asked(request: Request) -> Request:
    """Returns a request without the parts that name its Pod."""
    return replace(request, job=without_pod(request.job), problems=())
