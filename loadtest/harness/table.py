"""Reads the scenarios of `make bench` from table.toml."""

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import repeat
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter

from deploy.local.spec import DEFAULT_RELEASE
from deploy.local.users import JOB_USERS
from loadtest.harness.variants import ROOMY, Placer, Variant
from slurm_client.model import JobSpec

_NATIVE_PARTITION: Final = "native"
_NATIVE_SIZE: Final = f"CPUs={ROOMY.cpus_per_node} RealMemory={ROOMY.memory_mb}"
NATIVE_CONF: Final = (
    f"NodeName=native-[1-50] NodeAddr=127.0.0.1 {_NATIVE_SIZE} State=EXTERNAL",
    f"PartitionName={_NATIVE_PARTITION} Nodes=native-[1-50] MaxTime=INFINITE State=UP",
)
"""Lines of slurm.conf for nodes that Kubernetes does not know, and for a partition of these nodes."""


class Flow(StrEnum):
    """The order of steps for a Pod. GATE_FIRST: the webhook adds a scheduling gate, and kube-scheduler
    sees the Pod only after Slurm has placed the Pod. FILTER_FIRST: no webhook, so kube-scheduler sees
    the Pod at once."""

    GATE_FIRST = "gate first"
    FILTER_FIRST = "filter first"


class Owner(StrEnum):
    """The owner of the jobs. The owner is either a user that the policy names, as in a deployment, or
    the user of the extender's token."""

    MAPPED = "mapped user"
    TOKEN = "token's user"  # noqa: S105 -- no token


_POLICY: Final = {
    Owner.MAPPED: f"""\
preset: restricted
rules:
- name: all
  namespaces: [default]
  default: {{user: {JOB_USERS["alice"]}}}
""",
    Owner.TOKEN: "",
}


class Way(StrEnum):
    """The call with which the extender requests a job from Slurm. With FAST, the extender uses
    job/allocate if possible, and job/submit in all other cases."""

    FAST = "job/allocate"
    SUBMIT = "job/submit"


@dataclass(frozen=True, slots=True)
class Scenario:
    """A scenario.

    * `bursts` and `steadies`: numbers of timed bursts and steady loads. The steady loads together
      have as many Pods as one burst.
    * `idle`: number of Pods that are created one after the other
    * `native`: number of native jobs, running and waiting, in a partition with nodes of its own. None
      means no such partition.
    * `before`: number of jobs that already wait for a node in the Pods' partition when the first Pod is
      created
    * `scheduler`: further SchedulerParameters of Slurm
    * `percent_scored`: kube-scheduler's percentageOfNodesToScore
    """

    stage: str
    name: str
    placer: Placer
    nodes: int
    flow: Flow = Flow.GATE_FIRST
    path: Way = Way.FAST
    release: str = DEFAULT_RELEASE
    native: int | None = None
    before: int = 0
    scheduler: tuple[str, ...] = ()
    percent_scored: int = 100
    bursts: int = 3
    steadies: int = 3
    idle: int = 100
    owner: Owner = Owner.TOKEN

    @property
    def variant(self) -> Variant:
        slow = self.path is Way.SUBMIT and self.placer in {Placer.STUB, Placer.REAL}
        like = replace(
            ROOMY,
            release=self.release,
            policy=_POLICY[self.owner],
            extender_settings=(("FAST_PATH", "false"),) if slow else (),
            slurm_conf=() if self.native is None else NATIVE_CONF,
            scheduler_parameters=self.scheduler,
            percentage_of_nodes_to_score=self.percent_scored,
        )
        return Variant(self.placer, self.nodes, like)

    def native_jobs(self) -> Iterator[JobSpec]:
        """Yields the `native` jobs, with one CPU each. 800 of these jobs run, the rest wait. If `before`
        is not 0, also yields a job that fills a node of the Pods, and `before` jobs that wait for this
        node. Because of the waiting jobs, the backfill scheduler places all later jobs."""
        elsewhere = JobSpec("native", cpus=1, memory_mb=100, partition=_NATIVE_PARTITION)
        whole = JobSpec("native", ROOMY.cpus_per_node, 1000, required_nodes=("external-1",))
        yield from repeat(elsewhere, self.native or 0)
        yield from repeat(whole, 1 + self.before if self.before else 0)


PODS: Final = 1000
"""Number of Pods in a burst, and in all steady loads together."""
STEADY_PODS_PER_S: Final = 25.0
"""About half the rate of a burst on slow cores."""
ONE_AT_A_TIME: Final = "one at a time, 1,000 Nodes"


_TABLES: Final = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
SCENARIOS: Final = tuple(
    TypeAdapter(Scenario).validate_python({"stage": stage, "name": name, **row})
    for stage, rows in _TABLES.items()
    for name, row in rows.items()
)


def one(placer: str, nodes: int, native: int | None = None, path: str = Way.FAST) -> Scenario | None:
    """Returns the first scenario with these properties, or None."""
    usual = (placer, nodes, native, Flow.GATE_FIRST, path)
    return next((each for each in SCENARIOS if _way(each) == usual), None)


def _way(each: Scenario) -> tuple[Placer, int, int | None, Flow, Way]:
    return each.placer, each.nodes, each.native, each.flow, each.path


def singly(placer: str, path: str = Way.FAST) -> Scenario | None:
    """Returns the scenario that creates Pods one at a time on 1,000 Nodes, preferably from the stage
    ONE_AT_A_TIME."""
    sought = (ONE_AT_A_TIME, placer, path)
    own = (each for each in SCENARIOS if (each.stage, each.placer, each.path) == sought)
    return next(own, one(placer, 1000, path=path))
