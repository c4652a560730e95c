"""What `make bench` measures. Those of a stage have their clusters up together and work in turn, so that
what else the machine does falls on all of them: compare within a stage."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from deploy.local.spec import DEFAULT_RELEASE


class Who(StrEnum):
    """Who places the Pods."""

    ALONE = "alone"
    """kube-scheduler that nobody extends."""
    NOOP = "noop"
    """With the extender of loadtest/noop."""
    STUB = "stub"
    """With ours, and the stub for Slurm."""
    REAL = "real"
    """With ours, and Slurm."""
    REST = "rest"
    """Nobody: the same jobs by slurmrestd, without Kubernetes. Slurm's own ceiling."""


class Flow(StrEnum):
    """Whether the webhook gates Pods until Slurm has placed them, or kube-scheduler has them at once."""

    GATE_FIRST = "gate first"
    FILTER_FIRST = "filter first"


class Path(StrEnum):
    """How Slurm is asked."""

    FAST = "job/allocate"
    """Where it can be; else as the other."""
    SUBMIT = "job/submit"


@dataclass(frozen=True, slots=True)
class Scenario:
    """`bursts` and `steadies` are how many of them are timed, `idle` how many Pods one after the other.
    The steady loads share the Pods of one burst.

    `native` jobs, running and waiting, are in a partition of their own, on nodes of their own, which
    are there where this is not None. `before` are those that wait in the Pods' partition, for one node,
    before any Pod comes. `scheduler` are more of Slurm's SchedulerParameters, `percent_scored` is
    kube-scheduler's percentageOfNodesToScore.
    """

    stage: str
    name: str
    who: Who
    nodes: int
    flow: Flow = Flow.GATE_FIRST
    path: Path = Path.FAST
    release: str = DEFAULT_RELEASE
    native: int | None = None
    before: int = 0
    scheduler: tuple[str, ...] = ()
    percent_scored: int = 100
    bursts: int = 3
    steadies: int = 3
    idle: int = 100


PODS: Final = 1000
"""Of a burst, and of the steady loads together."""
STEADY_PODS_PER_S: Final = 25.0
"""Some half of what a burst reaches where cores are slow."""

_200, _1000, _5000 = "200 Nodes", "1,000 Nodes", "5,000 Nodes"
_WAYS: Final = "ways through, 1,000 Nodes"
_NATIVE: Final = "native jobs elsewhere, 1,000 Nodes"
ONE_AT_A_TIME: Final = "one at a time, 1,000 Nodes"
_BEFORE: Final = "behind a queue, 1,000 Nodes"

_SAMPLES: Final = "no-op extender, kube-scheduler samples Nodes"
"""Its default: it looks at 42 % of 1,000 Nodes, and at 10 % of 5,000. Ours has to be shown all."""
_YIELDS: Final = ("bf_continue", "bf_yield_interval=100000", "bf_yield_sleep=100000")
"""Backfill lets go of Slurm's locks every 0.1 s, for 0.1 s; by default every 2 s, for 0.5 s."""

SCENARIOS: Final = (
    Scenario(_200, "kube-scheduler alone", Who.ALONE, 200),
    Scenario(_200, "no-op extender", Who.NOOP, 200),
    Scenario(_200, "ours, stub", Who.STUB, 200),
    Scenario(_200, "ours, Slurm 26.05", Who.REAL, 200),
    Scenario(_200, "ours, Slurm 24.11", Who.REAL, 200, release="24.11"),
    Scenario(_200, "Slurm alone, job/allocate", Who.REST, 200),
    Scenario(_200, "Slurm alone, job/submit", Who.REST, 200, path=Path.SUBMIT),
    # The same with more Nodes.
    Scenario(_1000, "kube-scheduler alone", Who.ALONE, 1000),
    Scenario(_1000, "no-op extender", Who.NOOP, 1000),
    Scenario(_1000, _SAMPLES, Who.NOOP, 1000, percent_scored=0),
    Scenario(_1000, "ours, stub", Who.STUB, 1000),
    Scenario(_1000, "ours, Slurm 26.05", Who.REAL, 1000),
    Scenario(_1000, "Slurm alone, job/allocate", Who.REST, 1000),
    Scenario(_1000, "Slurm alone, job/submit", Who.REST, 1000, path=Path.SUBMIT),
    # And with very many.
    Scenario(_5000, "kube-scheduler alone", Who.ALONE, 5000),
    Scenario(_5000, "no-op extender", Who.NOOP, 5000),
    Scenario(_5000, _SAMPLES, Who.NOOP, 5000, percent_scored=0),
    Scenario(_5000, "ours, stub", Who.STUB, 5000),
    Scenario(_5000, "ours, Slurm 26.05", Who.REAL, 5000),
    Scenario(_5000, "Slurm alone, job/allocate", Who.REST, 5000),
    Scenario(_5000, "Slurm alone, job/submit", Who.REST, 5000, path=Path.SUBMIT),
    # What the webhook and the fast path are worth.
    Scenario(_WAYS, "gate first, job/allocate", Who.REAL, 1000, idle=30),
    Scenario(_WAYS, "gate first, job/submit", Who.REAL, 1000, path=Path.SUBMIT, idle=30),
    Scenario(_WAYS, "filter first, job/allocate", Who.REAL, 1000, flow=Flow.FILTER_FIRST, idle=30),
    Scenario(
        *(_WAYS, "filter first, job/submit", Who.REAL, 1000, Flow.FILTER_FIRST, Path.SUBMIT),
        idle=30,
    ),
    # What one Pod takes where nothing else is at work: the clusters of a stage are never quite idle.
    Scenario(ONE_AT_A_TIME, "no-op extender", Who.NOOP, 1000, bursts=0, steadies=0, idle=300),
    Scenario(ONE_AT_A_TIME, "ours, Slurm 26.05", Who.REAL, 1000, bursts=0, steadies=0, idle=300),
    # What others have in Slurm, elsewhere.
    Scenario(_NATIVE, "no native jobs", Who.REAL, 1000, native=0, idle=30),
    Scenario(_NATIVE, "10,000 native jobs", Who.REAL, 1000, native=10_000, idle=30),
    Scenario(
        *(_NATIVE, "10,000 native jobs, backfill yields", Who.REAL, 1000),
        native=10_000,
        scheduler=_YIELDS,
        idle=30,
    ),
    # And in the same partition: backfill's time, reported apart.
    Scenario(_BEFORE, "20 jobs wait before", Who.REAL, 1000, before=20, bursts=2, steadies=0, idle=0),
)
