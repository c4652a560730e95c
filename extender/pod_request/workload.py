"""A workload: a Pod by itself, or the Pods of a group, with one job in Slurm."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from extender.pod_request.job_request import Request, without_pod
from wellknown.job_key import job_name

_UNLIKE = "the Pods of a group must have equal requests"


class Workload(NamedTuple):
    """The name of a workload. No user can choose the uid. The key of each job has the uid."""

    uid: str
    namespace: str
    name: str
    created: str = ""  # creationTimestamp of the first Pod, if known
    size: int = 1  # number of Pods

    @property
    def full_name(self) -> str:
        """Returns namespace/name."""
        return f"{self.namespace}/{self.name}"

    def request(self, of_members: Sequence[Request]) -> Request:
        """Returns the request of the workload: the same for each member, each on another node."""
        whole = of_members[0]
        for each in of_members[1:]:
            whole = self.request_with(whole, of_members[0], each)
        return self.request_with(whole, of_members[0], of_members[0])

    def request_with(self, whole: Request, first: Request, joining: Request) -> Request:
        """Returns the request `whole` with one more member, `joining`. `first` is the first member's."""
        if self.size == 1:
            return first
        problems = dict.fromkeys((*whole.problems, *joining.problems))
        if _asked(joining) != _asked(first):
            problems[_UNLIKE] = None
        job = replace(first.job, name=job_name(self.namespace, self.name), nodes=self.size)
        return replace(first, job=job, problems=tuple(problems))


def _asked(request: Request) -> Request:
    """Returns a request without the name of the Pod."""
    return replace(request, job=without_pod(request.job), problems=())
