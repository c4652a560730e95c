"""What a person says of the topology: which labels of Nodes mean what."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from slurm_cluster.topology.model import Kind, problem_of_name, problem_of_sizes
from wellknown.quoting import quoted

_FABRIC: Final = tuple(f"fabric.topograph.run/tier-{tier}" for tier in range(4, -1, -1))
_BEFORE_1: Final = tuple(f"network.topology.nvidia.com/{tier}" for tier in ("core", "spine", "leaf"))
_CLIQUE: Final = ("nvidia.com/gpu.clique",)


class Preset(StrEnum):
    """Labels that others put onto Nodes."""

    TOPOGRAPH = "topograph"
    """NVIDIA Topograph 1.0 and later."""
    TOPOGRAPH_0 = "topograph-0"
    """NVIDIA Topograph before 1.0."""
    NVIDIA_CLIQUE = "nvidia-clique"
    """NVIDIA's GPU operator, on machines with NVLink between them."""


PRESETS: Final = {
    (Preset.TOPOGRAPH, Kind.TREE): _FABRIC,
    (Preset.TOPOGRAPH, Kind.BLOCK): ("accelerator.topograph.run/domain",),
    (Preset.TOPOGRAPH_0, Kind.TREE): _BEFORE_1,
    (Preset.TOPOGRAPH_0, Kind.BLOCK): ("network.topology.nvidia.com/accelerator",),
    (Preset.NVIDIA_CLIQUE, Kind.TREE): _CLIQUE,
    (Preset.NVIDIA_CLIQUE, Kind.BLOCK): _CLIQUE,
}
"""The tiers of each preset, from the widest to the narrowest."""


class Names(StrEnum):
    """What a switch or a block is called."""

    VALUE = "value"
    """The label's value: rack-7."""
    PATH = "path"
    """The values of all tiers down to this one: room-1.rack-7."""


class Members(StrEnum):
    """How Slurm learns which nodes a switch or a block has."""

    LISTED = "listed"
    """The file names them."""
    TOLD = "told"
    """Each slurmd tells by its Topology= (Slurm 25.05 and later). The file has the switches alone, and
    stays as it is when Nodes come and go. It names Nodes without labels all the same."""


class WrongRules(ValueError):
    """The error for rules that no topology can be made by."""


@dataclass(frozen=True, slots=True)
class Rules:
    """How labels become a topology."""

    kind: Kind
    tiers: tuple[str, ...]
    """Keys of labels, from the widest tier to the narrowest."""
    block_sizes: tuple[int, ...] = ()
    names: Names = Names.VALUE
    members: Members = Members.LISTED
    root: str | None = "cluster"
    """The switch above all others; None: no job spans two switches that no label joins."""
    unlabelled: str = "unlabelled"
    """The switch of Nodes without labels."""

    def __post_init__(self) -> None:
        if not self.tiers:
            raise WrongRules("which labels make the tiers? give a preset, or tiers")
        if len(set(self.tiers)) < len(self.tiers):
            raise WrongRules("a label is given as two tiers")
        if self.kind is Kind.BLOCK and (wrong := problem_of_sizes(self.block_sizes)):
            raise WrongRules(f"block sizes: {wrong}")
        if self.kind is Kind.TREE and self.block_sizes:
            raise WrongRules("block sizes are of blocks; a tree has none")
        for name in filter(None, (self.root, self.unlabelled)):
            if wrong := problem_of_name(name):
                raise WrongRules(f"the name {quoted(name)} {wrong}")
        if self.root == self.unlabelled:
            raise WrongRules("the root and the switch of Nodes without labels need two names")

    @property
    def own_names(self) -> frozenset[str]:
        """Returns the names that no label may have as its value."""
        own = {self.root, self.unlabelled} if self.kind is Kind.TREE else set[str | None]()
        return frozenset(filter(None, own))


def tiers_of(kind: Kind, preset: Preset | None, tiers: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the tiers that a person means. Raises WrongRules where both are given."""
    if preset is None:
        return tiers
    if tiers:
        raise WrongRules(f"the preset {preset} has tiers of its own: give one or the other")
    return PRESETS[preset, kind]
