"""What is placed as a whole, by one job in Slurm: a Pod by itself, or the Pods of a group."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from extender.request.job_request import Request, without_pod
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
        """Returns what is asked of Slurm for the whole: of each member as much, on a node of its own."""
        first = of_members[0]
        if self.size == 1:
            return first
        job = replace(first.job, name=job_name(self.namespace, self.name), nodes=self.size)
        problems = dict.fromkeys(problem for each in of_members for problem in each.problems)
        if any(_asked(each) != _asked(first) for each in of_members):
            problems[_UNLIKE] = None
        return replace(first, job=job, problems=tuple(problems))


def _asked(request: Request) -> Request:
    """Returns a request without the parts that name its Pod."""
    return replace(request, job=without_pod(request.job), problems=())
