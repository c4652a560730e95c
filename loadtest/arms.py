"""What is compared: the same kube-scheduler, Nodes and Pods; each time someone else extends it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from deploy.local.spec import DEFAULT_RELEASE, EXTENDER_VERBS, ClusterSpec

# Of a Node. A thousand Pods of measurement.SIZES fill half of 200: none has to look for a gap.
CPUS_PER_NODE: Final = 16
GPUS_PER_NODE: Final = 8
MEMORY_MB: Final = 32_000

_SLURMRESTD: Final = "SLURMRESTD_URL"
_TIMES_TO_THE_MILLISECOND: Final = "LogTimeFormat=iso8601_ms,format_stderr"
"""So that slurmctld's log says when it started a job."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One of those that are compared: its name in the figures and the cluster that it needs."""

    name: str
    spec: ClusterSpec

    @property
    def has_jobs(self) -> bool:
        """Whether each Pod has a job in Slurm: with our own extender."""
        return self.spec.extender and not self.spec.extender_argv

    @property
    def stub_url(self) -> str | None:
        """Where the stub is that stands for its slurmrestd; None where that is real."""
        return dict(self.spec.extender_settings).get(_SLURMRESTD)

    def with_settings(self, *settings: tuple[str, str]) -> "Arm":
        """The same, its extender with these settings as well (ClusterSpec.extender_settings)."""
        spec = replace(self.spec, extender_settings=(*self.spec.extender_settings, *settings))
        return Arm(self.name, spec)

    def with_slurm_conf(self, *lines: str) -> "Arm":
        """The same, its slurm.conf with these lines as well."""
        return Arm(self.name, replace(self.spec, slurm_conf=(*self.spec.slurm_conf, *lines)))

    def with_scheduler_parameters(self, *more: str) -> "Arm":
        """The same, with these among slurm.conf's SchedulerParameters."""
        parameters = (*self.spec.scheduler_parameters, *more)
        return Arm(self.name, replace(self.spec, scheduler_parameters=parameters))

    def scoring(self, percent: int) -> "Arm":
        """The same, with so many of the Nodes looked at (ClusterSpec.percentage_of_nodes_to_score)."""
        return Arm(self.name, replace(self.spec, percentage_of_nodes_to_score=percent))


def alone(nodes: int) -> Arm:
    """kube-scheduler that nobody extends."""
    return Arm("alone", _spec(nodes, extender=False))


def noop(nodes: int, binary: Path) -> Arm:
    """With the extender of ./noop, which is asked for no more than what it does."""
    return Arm("noop", _spec(nodes, extender_argv=(str(binary),), extender_verbs=("filter", "bind")))


def ours(nodes: int, release: str = DEFAULT_RELEASE) -> Arm:
    """With the extender of this checkout, its webhook, and Slurm. Before 25.11 a slurmd stands for each
    Node: there is no State=EXTERNAL."""
    spec = _spec(nodes)
    if release != DEFAULT_RELEASE:
        spec = replace(spec, nodes=nodes, external_nodes=0, release=release)
    return Arm("ours", spec)


def slurm_alone(nodes: int) -> Arm:
    """Slurm that nobody asks for Pods: without Kubernetes."""
    return Arm("slurm", replace(_spec(nodes, extender=False), kubernetes=False))


def stubbed(nodes: int, url: str) -> Arm:
    """As `ours`; the stub of slurmrestd at `url` answers the extender."""
    return ours(nodes).with_settings((_SLURMRESTD, url))


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
        memory_mb=MEMORY_MB,
        gpus_per_node=GPUS_PER_NODE,
        extender=extender,
        extender_argv=tuple(extender_argv),
        extender_verbs=tuple(extender_verbs),
        slurm_conf=(_TIMES_TO_THE_MILLISECOND,),
    )
