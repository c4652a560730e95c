"""The allocation that Slurm granted to a Pod, as annotations of the Pod: the extender writes them, the
node reads them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from wellknown.job_key import whole_number
from wellknown.names import GRES, JOB_ID, NODE

_LONGEST_NAME = 253  # of an object in Kubernetes
_LONGEST_GRES = 1024


@dataclass(frozen=True, slots=True)
class Allocation:
    """What Slurm granted: the job, the Kubernetes Node that stands for its node, the device indices."""

    job_id: int
    node: str
    gres: str = ""

    def annotations(self) -> dict[str, str]:
        """Returns the annotations that write this allocation onto the Pod."""
        found = {JOB_ID: str(self.job_id), NODE: self.node}
        return found | {GRES: self.gres} if self.gres else found

    @classmethod
    def parse(cls, annotations: Mapping[str, str]) -> Self | None:
        """Returns the allocation in a Pod's annotations, None where there is none or it is malformed."""
        job_id, node = whole_number(annotations.get(JOB_ID, "")), annotations.get(NODE, "")
        gres = annotations.get(GRES, "")
        if job_id is None or not 0 < len(node) <= _LONGEST_NAME or len(gres) > _LONGEST_GRES:
            return None
        return cls(job_id, node, gres)
