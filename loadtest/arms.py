"""What is compared: the same kube-scheduler, Nodes and Pods; each time someone else extends it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deploy.local.spec import EXTENDER_VERBS, ClusterSpec

CPUS_PER_NODE: Final = 8
GPUS_PER_NODE: Final = 4


@dataclass(frozen=True, slots=True)
class Arm:
    """One of those that are compared: its name in the figures and the cluster that it needs."""

    name: str
    spec: ClusterSpec

    @property
    def has_jobs(self) -> bool:
        """Whether each Pod has a job in Slurm: with our own extender."""
        return self.spec.extender and not self.spec.extender_argv


def alone(nodes: int) -> Arm:
    """kube-scheduler that nobody extends."""
    return Arm("alone", _spec(nodes, extender=False))


def noop(nodes: int, binary: Path) -> Arm:
    """With the extender of ./noop, which is asked for no more than what it does."""
    return Arm("noop", _spec(nodes, extender_argv=(str(binary),), extender_verbs=("filter", "bind")))


def ours(nodes: int) -> Arm:
    """With the extender of this checkout, its webhook, and Slurm."""
    return Arm("ours", _spec(nodes))


def _spec(
    nodes: int,
    *,
    extender: bool = True,
    extender_argv: Sequence[str] = (),
    extender_verbs: Sequence[str] = EXTENDER_VERBS,
) -> ClusterSpec:
    """Slurm is there in every arm, so that what it costs idle is too."""
    return ClusterSpec(
        nodes=0,
        external_nodes=nodes,
        cpus_per_node=CPUS_PER_NODE,
        gpus_per_node=GPUS_PER_NODE,
        extender=extender,
        extender_argv=tuple(extender_argv),
        extender_verbs=tuple(extender_verbs),
    )
