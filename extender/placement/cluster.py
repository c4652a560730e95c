"""Both systems' nodes side by side, as they were when last looked at: what there is to choose from.

A Node stands for one Slurm node. Slurm nodes without a Node run native jobs only, and are excluded
from every placeholder.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from extender.placement.node_constraints import Node, NodeConstraints
from slurm_client.model import JobSpec, Partition


@dataclass(frozen=True, slots=True)
class ClusterView:
    """One version of the read model. Nodes by Kubernetes name, partitions by name."""

    nodes: Mapping[str, Node] = field(default_factory=dict)
    partitions: Mapping[str, Partition] = field(default_factory=dict)
    preemption: bool = True
    """Whether this Slurm may preempt at all; True until it is known not to."""
    qos_preemption: bool = False
    """Whether it preempts by QOS, whatever the partitions' tiers are."""
    graceful_qos: frozenset[str] = frozenset()
    """The QOS that have a GraceTime, as far as an administrator has said."""
    cluster: str = ""
    """The Kubernetes cluster's identity, which is in every job's key; empty until it is known."""

    # Worked out when first asked for.
    _excluded: dict[tuple[str, str, frozenset[str]], tuple[str, ...]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _listed: dict[str, tuple[str, ...]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _graceful: dict[tuple[str | None, str | None], bool] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _standing: dict[str, Node] = field(default_factory=dict, init=False, repr=False, compare=False)

    def node_of(self, slurm_name: str) -> Node | None:
        """Returns the Node that stands for a Slurm node."""
        if not self._standing:
            for node in self.nodes.values():
                self._standing.setdefault(node.slurm_name, node)
                if node.name == node.slurm_name:  # it comes before those that are said to be it
                    self._standing[node.name] = node
        return self._standing.get(slurm_name)

    def partition_name(self, asked: str | None) -> str:
        """Returns the partition a job goes to: the one it names, else Slurm's default."""
        default = (p.name for p in self.partitions.values() if p.default)
        return asked or next(default, "")

    def may_preempt(self, partition: str) -> bool:
        """Tells whether a job of this partition could take another's place.

        An immediate allocation that is refused may have preempted all the same, so there is no fast
        path in such a partition. True for a partition that is not known.
        """
        own = self.partitions.get(partition)
        if not self.preemption:
            return False
        if own is None or self.qos_preemption:
            return True
        shared = (p for p in self.partitions.values() if set(p.nodes) & set(own.nodes))
        return any(p.priority_tier < own.priority_tier for p in shared)

    @property
    def gives_grace(self) -> bool:
        """Tells whether any job of this Slurm may be given time to leave when it is preempted."""
        graceful = (p.grace_time_s for p in self.partitions.values())
        return self.preemption and (bool(self.graceful_qos) or any(graceful))

    def has_grace(self, job: JobSpec) -> bool:
        """Tells whether such a job may be given time to leave: by its partition, or by its QOS. One that
        names no QOS has its user's default, whichever that is."""
        kind = (job.partition, job.qos)
        if kind not in self._graceful:
            partitions = self.partition_name(job.partition).split(",")
            by_partition = any(p.grace_time_s for n, p in self.partitions.items() if n in partitions)
            named = self.graceful_qos if job.qos is None else set(job.qos.split(","))
            by_qos = not self.graceful_qos.isdisjoint(named)
            self._graceful[kind] = self.preemption and (by_partition or by_qos)
        return self._graceful[kind]

    def excluded_nodes(
        self, constraints: NodeConstraints, partition: str, avoid: frozenset[str]
    ) -> tuple[str, ...]:
        """Returns the Slurm nodes of a partition that cannot be used, cut to those Slurm knows.

        `avoid` names Nodes that refused this Pod of late. Worked out once for Pods that are alike.
        """
        question = (constraints.signature, partition, avoid)
        if question not in self._excluded:
            self._excluded[question] = self._closed_nodes(constraints, partition, avoid)
        return self._excluded[question]

    def _closed_nodes(
        self, constraints: NodeConstraints, partition: str, avoid: frozenset[str]
    ) -> tuple[str, ...]:
        usable = {
            node.slurm_name
            for node in self.nodes.values()
            if node.name not in avoid and constraints.admit(node)
        }
        return tuple(name for name in self.slurm_nodes(partition) if name not in usable)

    def slurm_nodes(self, partition: str) -> tuple[str, ...]:
        """Returns the nodes of a partition, or of a list of them ("a,b", which sbatch takes)."""
        if partition not in self._listed:
            listed = (
                self.partitions[name].nodes for name in partition.split(",") if name in self.partitions
            )
            self._listed[partition] = tuple(dict.fromkeys(node for nodes in listed for node in nodes))
        return self._listed[partition]
