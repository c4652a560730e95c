"""A pool as its file says it: pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from wellknown.slurmd_pod import Assignment, digest_of, revision_name


@dataclass(frozen=True, slots=True)
class Update:
    """How a changed template comes to the Nodes."""

    max_unavailable: int | str = 1
    """Nodes, or a percentage of the pool's: "25%"."""
    stop_after: int = 2
    in_maintenance: bool = False
    """Only on nodes that a maintenance reservation of Slurm's holds now."""

    def most_unavailable(self, nodes: int) -> int:
        """Returns how many of so many Nodes may be out of service at a time: 1 at least."""
        if isinstance(self.max_unavailable, int):
            return self.max_unavailable
        return max(1, nodes * int(self.max_unavailable.removesuffix("%")) // 100)


@dataclass(frozen=True)
class Pool:
    """Nodes that each run one slurmd Pod of a template."""

    name: str
    selector: Mapping[str, str]
    """The labels that its Nodes have."""
    replicas: int | None = None
    """How many of these Nodes; None: all."""
    update: Update = Update()
    data: Mapping[str, Any] = field(default_factory=dict)
    """What a revision has: all that the slurmd Pod is made of."""
    partitions: frozenset[str] = frozenset()
    """Those of Slurm whose pending jobs are told as demand for it."""
    in_file: bool = True
    """Whether the file has it yet: it may have Nodes all the same."""

    @property
    def is_emptied(self) -> bool:
        """Whether the file says that it is to have no Nodes."""
        return self.in_file and self.replicas == 0

    @cached_property
    def assignment(self) -> Assignment:
        """Returns what its Nodes are to run."""
        conf = digest_of(self.data.get("slurm") or {})
        return Assignment(self.name, revision_name(self.name, self.data), conf)

    def selects(self, labels: Mapping[str, str]) -> bool:
        return all(labels.get(key) == value for key, value in self.selector.items())
