"""Describes a pool, as the pools' file defines the pool. This module is pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from wellknown.slurmd_pod import Assignment, digest_of, revision_name


@dataclass(frozen=True, slots=True)
class Update:
    """Strategy for bringing a changed template to the Nodes."""

    max_unavailable: int | str = 1
    """A number of Nodes, or a percentage of the pool's Nodes: "25%"."""
    stop_after: int = 2
    in_maintenance: bool = False
    """True if a changed template goes only to nodes in a running maintenance reservation of Slurm."""

    def most_unavailable(self, nodes: int) -> int:
        """Returns how many of `nodes` Nodes may be out of service at a time: at least 1."""
        if isinstance(self.max_unavailable, int):
            return self.max_unavailable
        return max(1, nodes * int(self.max_unavailable.removesuffix("%")) // 100)


@dataclass(frozen=True)
class Pool:
    """Nodes that each run one slurmd Pod of a template."""

    name: str
    selector: Mapping[str, str]
    """The labels of the pool's Nodes."""
    replicas: int | None = None
    """Number of matching Nodes in the pool. None means all matching Nodes."""
    update: Update = Update()
    data: Mapping[str, Any] = field(default_factory=dict)
    """Content of a revision: everything that a slurmd Pod is created from."""
    partitions: frozenset[str] = frozenset()
    """Slurm partitions whose pending jobs are the pool's demand."""
    in_file: bool = True
    """False for a pool that is gone from the file. Such a pool may still have Nodes."""

    @property
    def is_emptied(self) -> bool:
        """True if the file says `replicas: 0`."""
        return self.in_file and self.replicas == 0

    @cached_property
    def assignment(self) -> Assignment:
        """The assignment of the pool's Nodes to the newest revision."""
        conf = digest_of(self.data.get("slurm") or {})
        return Assignment(self.name, revision_name(self.name, self.data), conf)

    def selects(self, labels: Mapping[str, str]) -> bool:
        return all(labels.get(key) == value for key, value in self.selector.items())
