"""The administrator's rules, which give Nodes' labels a meaning for the topology."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from slurm_cluster.topology.model import Kind, problem_of_name, problem_of_sizes
from wellknown.quoting import quoted

_FABRIC: Final = tuple(f"fabric.topograph.run/tier-{tier}" for tier in range(4, -1, -1))
_BEFORE_1: Final = tuple(f"network.topology.nvidia.com/{tier}" for tier in ("core", "spine", "leaf"))
_CLIQUE: Final = ("nvidia.com/gpu.clique",)


class Preset(StrEnum):
    """Sources of labels on Nodes."""

    TOPOGRAPH = "topograph"
    """NVIDIA Topograph 1.0 and later."""
    TOPOGRAPH_0 = "topograph-0"
    """NVIDIA Topograph before 1.0."""
    NVIDIA_CLIQUE = "nvidia-clique"
    """NVIDIA's GPU operator, on machines with NVLink between machines."""


PRESETS: Final = {
    (Preset.TOPOGRAPH, Kind.TREE): _FABRIC,
    (Preset.TOPOGRAPH, Kind.BLOCK): ("accelerator.topograph.run/domain",),
    (Preset.TOPOGRAPH_0, Kind.TREE): _BEFORE_1,
    (Preset.TOPOGRAPH_0, Kind.BLOCK): ("network.topology.nvidia.com/accelerator",),
    (Preset.NVIDIA_CLIQUE, Kind.TREE): _CLIQUE,
    (Preset.NVIDIA_CLIQUE, Kind.BLOCK): _CLIQUE,
}
"""Tiers of each preset, from the widest to the narrowest."""


class Names(StrEnum):
    """The form of the names of switches and blocks."""

    VALUE = "value"
    """The label's value, like rack-7."""
    PATH = "path"
    """The values of all wider tiers and of this tier, like room-1.rack-7."""


class Members(StrEnum):
    """The source of the nodes that a switch or block has."""

    LISTED = "listed"
    """The file lists the nodes."""
    REPORTED = "reported"
    """Each slurmd reports its place in Topology= (Slurm 25.05 and later). The file has only
    switches, and does not change when Nodes appear or disappear. The file still lists Nodes without
    labels."""


class WrongRules(ValueError):
    """Raised for rules that give no topology."""


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules for a topology from labels."""

    kind: Kind
    tiers: tuple[str, ...]
    """Keys of labels, from the widest tier to the narrowest."""
    block_sizes: tuple[int, ...] = ()
    names: Names = Names.VALUE
    members: Members = Members.LISTED
    root: str | None = "cluster"
    """Name of the root switch, which is the parent of all switches without a wider switch. If None, no
    root switch exists, so a job cannot span two switches without a common parent."""
    unlabelled: str = "unlabelled"
    """The switch of Nodes without labels."""

    def __post_init__(self) -> None:
        if not self.tiers:
            raise WrongRules("no tiers: give a preset, or tiers")
        if len(set(self.tiers)) < len(self.tiers):
            raise WrongRules("two tiers have the same label")
        if self.kind is Kind.BLOCK and (wrong := problem_of_sizes(self.block_sizes)):
            raise WrongRules(f"block sizes: {wrong}")
        if self.kind is Kind.TREE and self.block_sizes:
            raise WrongRules("block sizes are for blocks, not for a tree")
        for name in filter(None, (self.root, self.unlabelled)):
            if wrong := problem_of_name(name):
                raise WrongRules(f"the name {quoted(name)} {wrong}")
        if self.root == self.unlabelled:
            raise WrongRules("the root and the switch of Nodes without labels need different names")

    @property
    def own_names(self) -> frozenset[str]:
        """Names that no label may have as a value."""
        own = {self.root, self.unlabelled} if self.kind is Kind.TREE else set[str | None]()
        return frozenset(filter(None, own))


def tiers_of(kind: Kind, preset: Preset | None, tiers: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the tiers of a preset, or the given tiers. Raises WrongRules if both are given."""
    if preset is None:
        return tiers
    if tiers:
        raise WrongRules(f"the preset {preset} sets the tiers: give a preset or tiers, not both")
    return PRESETS[preset, kind]
