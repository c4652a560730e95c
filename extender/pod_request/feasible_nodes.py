"""The Nodes that kube-scheduler offers for a Pod after kube-scheduler has rejected the allocated
Node."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from slurm_client import hostlist
from wellknown.job_key import whole_number
from wellknown.names import FEASIBLE_NODES

_MOST_NAMED = 1000
_LONGEST_OFFER = 3072


@dataclass(frozen=True, slots=True)
class FeasibleNodes:
    """The Nodes that kube-scheduler offers instead of a job's Node. The list is empty if the names do
    not fit into an annotation."""

    job_id: int  # 0 for a Pod without an allocation
    nodes: tuple[str, ...] = ()
    """One hostlist expression for all names, to save memory while the Pod waits."""

    def __post_init__(self) -> None:
        """Compresses the names. Removes all names if the names are too many or too long."""
        text = hostlist.compress(self.nodes) if len(self.nodes) <= _MOST_NAMED else ""
        object.__setattr__(self, "nodes", (text,) if 0 < len(text) <= _LONGEST_OFFER else ())

    @property
    def names(self) -> tuple[str, ...]:
        """Returns the names of the Nodes. The result is empty if the list is malformed: every user who
        may edit the Pod can write the annotation."""
        try:
            return hostlist.expand(",".join(self.nodes), _MOST_NAMED)
        except ValueError:
            return ()

    @property
    def taken(self) -> tuple[str, ...]:
        """Returns the names as one hostlist expression. The result is empty if the list is malformed."""
        return self.nodes if self.names else ()

    def annotations(self) -> dict[str, str]:
        """Returns the annotation for the Pod."""
        return {FEASIBLE_NODES: " ".join((str(self.job_id), *self.nodes))}

    @classmethod
    def parse(cls, annotations: Mapping[str, str]) -> Self | None:
        """Returns the content of a Pod's annotation; None if missing or malformed."""
        job_id, *nodes = annotations.get(FEASIBLE_NODES, "").split() or ("",)
        number = whole_number(job_id)
        return None if number is None else cls(number, tuple(nodes))
