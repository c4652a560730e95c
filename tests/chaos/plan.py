"""What happens when, from a seed and nothing else: two runs of one seed are attacked and used alike."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from random import Random

from deploy.local.links import TARGETS
from deploy.local.proxy import FAULTS, HEALTHY
from deploy.local.spec import ClusterSpec
from tests.chaos.scene import GRACEFUL, HIGH, LOW, MAIN, MOST_GRACE_S

STORM_S = 28.0
_ATTACKS_A_SECOND = 1.4
_LONG = 0.04
"""Of the attacks, that last for longer than anybody's patience."""
_PODS_A_SECOND = 1.9
_JOBS_A_SECOND = 0.4
_MOST_STAYING = 6  # those would fill the nodes
_GUESTS = 0.08
_DRAINS_APART_S = 25.0

KILL = "kill"
PAUSE = "pause"


@dataclass(frozen=True, slots=True)
class Attack:
    """`at` seconds after its storm began, for `lasts` seconds. `how` is KILL, PAUSE, or a fault of
    deploy.local.proxy, which hits the link of `target`, an extender, to `link`."""

    at: float
    how: str
    target: str
    lasts: float
    link: str = ""

    @property
    def victim(self) -> str:
        """What one attack at a time can hit."""
        return f"{self.target}-to-{self.link}" if self.link else self.target


class Fate(StrEnum):
    """How a Pod's life is to end, `after` seconds from its creation."""

    DELETE = "its author deletes it"
    FINISH = "it ends by itself, and is deleted later"
    CANCEL = "an admin cancels its placeholder"
    STAY = "it stays"


@dataclass(frozen=True, slots=True)
class PodPlan:
    at: float
    name: str
    cpus: int
    gpus: int
    fate: Fate
    after: float
    partition: str
    """Empty for a guest: a Pod that is none of Slurm's, whom Kubernetes places in what is left."""
    grace_s: int
    """All of which it takes to end."""


@dataclass(frozen=True, slots=True)
class JobPlan:
    """A native job of `user`'s that sleeps for `seconds`, unless it is cancelled before."""

    at: float
    name: str
    user: str
    cpus: int
    seconds: int
    cancel_after: float | None
    partition: str


class Outage(StrEnum):
    """How a person takes a node out of service, for a time."""

    CORDON = "cordoned"
    DRAIN = "drained in Slurm"
    DOWN = "down in Slurm"


@dataclass(frozen=True, slots=True)
class OutagePlan:
    at: float
    node: str
    how: Outage
    lasts: float


def victims(spec: ClusterSpec) -> dict[str, float]:
    """The components that are killed and paused, and how much each draws attacks."""
    extenders = dict.fromkeys(spec.extender_names, 2.0)
    schedulers = dict.fromkeys(spec.scheduler_names, 1.5)
    return {**extenders, **schedulers, "slurmctld": 2.5, "slurmrestd": 2.0, "kube-apiserver": 1.2}


def storms(seed: int, spec: ClusterSpec, lasts: float = STORM_S) -> Iterator[tuple[Attack, ...]]:
    """One storm after the other, without end; each begins when all is well again."""
    random = Random(f"storms {seed}")
    while True:
        yield tuple(_storm(random, spec, lasts))


def _storm(random: Random, spec: ClusterSpec, lasts: float) -> Iterator[Attack]:
    busy: dict[str, float] = {}
    at = random.expovariate(_ATTACKS_A_SECOND)
    while at < lasts:
        attack = _attack(random, spec, at)
        if busy.get(attack.victim, 0.0) <= at:
            busy[attack.victim] = at + attack.lasts
            yield attack
        at += random.expovariate(_ATTACKS_A_SECOND)


def _attack(random: Random, spec: ClusterSpec, at: float) -> Attack:
    how = random.choices((KILL, PAUSE, "link"), (0.68, 0.12, 0.20))[0]
    long = random.uniform(12.0, 30.0) if random.random() < _LONG else 0.0
    if how == "link" and spec.links:
        fault = random.choice([fault for fault in FAULTS if fault != HEALTHY])
        lasts = long or random.uniform(0.5, 7.0)
        return Attack(at, fault, random.choice(spec.extender_names), lasts, random.choice(TARGETS))
    weights = victims(spec)
    target = random.choices(list(weights), list(weights.values()))[0]
    if how == PAUSE:
        return Attack(at, PAUSE, target, long or random.uniform(0.5, 8.0))
    return Attack(at, KILL, target, long or random.uniform(0.1, 3.0))


def pods(seed: int, duration: float) -> Iterator[PodPlan]:
    random = Random(f"pods {seed}")
    at, number, staying = 0.0, 0, 0
    while (at := at + random.expovariate(_PODS_A_SECOND)) < duration:
        number += 1
        fate = random.choices(list(Fate), (0.5, 0.25, 0.2, 0.05))[0]
        if fate is Fate.STAY and (staying := staying + 1) > _MOST_STAYING:
            fate = Fate.DELETE
        cpus = 1 if fate is Fate.STAY else random.choices((1, 2, 4), (0.7, 0.22, 0.08))[0]
        gpus = random.choices((0, 1), (0.85, 0.15))[0]
        partition = random.choices((MAIN, LOW, GRACEFUL, HIGH), (0.3, 0.3, 0.25, 0.15))[0]
        if random.random() < _GUESTS:
            partition, cpus, gpus = "", 1, 0
        after, grace = random.uniform(2.0, 14.0), random.randint(1, MOST_GRACE_S)
        yield PodPlan(at, f"p{number}", cpus, gpus, fate, after, partition, grace)


def jobs(seed: int, duration: float) -> Iterator[JobPlan]:
    random = Random(f"jobs {seed}")
    at, number = 0.0, 0
    while (at := at + random.expovariate(_JOBS_A_SECOND)) < duration:
        number += 1
        user, cpus = random.choice(("alice", "bob")), random.choice((1, 2, 4, 6, 8))
        cancel = random.uniform(1.0, 6.0) if random.random() < 0.3 else None
        partition = random.choices((MAIN, LOW, GRACEFUL, HIGH), (0.25, 0.2, 0.1, 0.45))[0]
        yield JobPlan(at, f"native-{number}", user, cpus, random.randint(2, 12), cancel, partition)


def outages(seed: int, duration: float, spec: ClusterSpec) -> Iterator[OutagePlan]:
    """One node at a time."""
    random = Random(f"outages {seed}")
    at = random.expovariate(1 / _DRAINS_APART_S)
    while at < duration:
        lasts = random.uniform(5.0, 45.0)
        yield OutagePlan(at, random.choice(spec.node_names), random.choice(list(Outage)), lasts)
        at += lasts + random.expovariate(1 / _DRAINS_APART_S)
