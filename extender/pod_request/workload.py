"""A workload: a Pod by itself, or the Pods of a group. Each workload has one job in Slurm."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from extender.pod_request.job_request import Request, without_pod
from wellknown.job_key import job_name

_UNLIKE = "the Pods of a group must have equal requests"


class Workload(NamedTuple):
    """The identity of a workload. No user can choose the uid, and the key of each job of the workload
    has the uid."""

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
        """Returns the request of the whole workload. Each member must have the same request, and each
        member gets a separate node."""
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
        if _asked(joining) != _asked(first):
            problems[_UNLIKE] = None
        job = replace(first.job, name=job_name(self.namespace, self.name), nodes=self.size)
        return replace(first, job=job, problems=tuple(problems))


def _asked(request: Request) -> Request:
    """Returns a request without the name of the Pod, to compare the requests of two Pods."""
    return replace(request, job=without_pod(request.job), problems=())
