"""Computes the attacks and the workload of a run from the seed: equal seeds give equal plans."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from random import Random

from deploy.local.links import TARGETS
from deploy.local.processes.proxy import FAULTS, HEALTHY
from deploy.local.spec import ClusterSpec
from tests.chaos.cluster_spec import (
    CLOSED,
    DENIED,
    GRACEFUL,
    HELD,
    HIGH,
    LOW,
    MAIN,
    MOST_GRACE_S,
    WINDOW,
)

STORM_S = 28.0
_ATTACKS_A_SECOND = 1.4
_LONG = 0.04
"""Share of the attacks with a duration above the timeouts of the components."""
_PODS_A_SECOND = 1.9
_JOBS_A_SECOND = 0.4
_MOST_STAYING = 6  # more Pods would fill the nodes
_GUESTS = 0.08
_DRAINS_APART_S = 25.0
_ALICES = 0.6
"""Share of the Pods with a job of the user alice. She may change these jobs."""
_MISCHIEF_APART_S = 4.0
_GANGS_APART_S = 12.0
_GANG_SIZES = (2, 3, 4, 6, 8, 12, 16)
_GANG_COMES_S = 2.0
_BURSTS_APART_S = 100.0
_BURST_LASTS_S = 75.0  # long enough for most of the rest after a storm
_BURST = 2 * WINDOW

KILL = "kill"
PAUSE = "pause"


@dataclass(frozen=True, slots=True)
class Attack:
    """An attack on a component. `at` and `lasts` are seconds. `how` is KILL, PAUSE, or a fault of the
    component's link to `link`."""

    at: float
    how: str
    target: str
    lasts: float
    link: str = ""

    @property
    def victim(self) -> str:
        """Returns the name of the component or link. Attacks with the same victim never overlap."""
        return f"{self.target}-to-{self.link}" if self.link else self.target


class Fate(StrEnum):
    """Planned end of a Pod, `after` seconds from the creation."""

    DELETE = "its author deletes it"
    FINISH = "it ends by itself, and is deleted later"
    CANCEL = "an admin cancels its placeholder"
    FORCE = "its author deletes it by force"
    SLOWLY = "its author lets it leave slowly, and an admin cancels its placeholder meanwhile"
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
    """Empty for an adopted Pod, because Kubernetes places the Pod in the remaining capacity."""
    grace_s: int
    """Grace period in seconds. A deleted Pod uses the whole grace period."""
    owner: str
    """User of the Pod's job."""


class GangFate(StrEnum):
    """Planned end of a gang, `after` seconds from the creation."""

    DELETE = "its author deletes all members"
    FINISH = "all members end by themselves, and are deleted later"
    CANCEL = "an admin cancels its placeholder"
    LOSE = "its author deletes a member and creates another Pod of the gang, and later deletes all"


@dataclass(frozen=True, slots=True)
class GangPlan:
    """A gang of `size` Pods with one CPU each. The members are created in random order, within
    `_GANG_COMES_S`."""

    at: float
    name: str
    comes: tuple[float, ...]
    """Seconds from `at` to the creation of each member."""
    fate: GangFate
    after: float
    partition: str
    owner: str

    @property
    def size(self) -> int:
        return len(self.comes)


class Odd(StrEnum):
    """Reason why a Pod can never be bound, and value of the Pod's label `cluster_spec.ODD`."""

    GREEDY = "greedy"
    """The owner has many Pods that cannot start. Only some of these Pods have jobs."""
    MODEST = "modest"
    """A Pod of another owner, beside the greedy owner's Pods. The Pod has a job, and waits too."""
    DENIED = "denied"
    """job_submit.lua rejects the Pod's job."""
    CLAIM = "claim"
    """The Pod's PersistentVolumeClaim is missing."""
    NOWHERE = "nowhere"
    """The Pod's affinity requires a Pod that does not exist. So kube-scheduler rejects every Node."""


_SINGLE = (  # reason, seconds between two Pods, lifetime of a Pod in seconds, partition
    (Odd.DENIED, 20.0, 50.0, MAIN),
    (Odd.CLAIM, 60.0, 60.0, HIGH),
    (Odd.NOWHERE, 100.0, 150.0, HIGH),
)


@dataclass(frozen=True, slots=True)
class OddPlan:
    at: float
    name: str
    why: Odd
    owner: str
    partition: str
    comment: str
    lasts: float


class Mischief(StrEnum):
    """Change of a placeholder by a user with the right to do so."""

    REWRITE = "AdminComment overwritten"
    """An administrator changes the job of a running Pod."""
    SHRINK = "shrunk"
    """An owner changes a waiting job. Owners also move, rename and hold waiting jobs."""
    MOVE = "moved"
    RENAME = "renamed"
    HOLD = "held and released"
    SUSPEND = "suspended and resumed"
    """An administrator changes the job of a running Pod, mostly between two polls. The extender evicts
    the Pod."""


@dataclass(frozen=True, slots=True)
class MischiefPlan:
    at: float
    how: Mischief
    choice: float
    """Position of the changed job among the possible jobs: from 0 (the first) to less than 1 (the last).
    The value is also the duration of a suspension or a hold, in seconds."""


@dataclass(frozen=True, slots=True)
class JobPlan:
    """A native job of `user` that sleeps for `seconds`, unless the user cancels the job earlier."""

    at: float
    name: str
    user: str
    cpus: int
    seconds: int
    cancel_after: float | None
    partition: str


class Outage(StrEnum):
    """Way in which a person takes a node out of service for some time."""

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
    """Returns the components to kill and pause, each with a weight for the random choice."""
    extenders = dict.fromkeys(spec.extender_names, 2.0)
    schedulers = dict.fromkeys(spec.scheduler_names, 1.5)
    return {**extenders, **schedulers, "slurmctld": 2.5, "slurmrestd": 2.0, "kube-apiserver": 1.2}


def storms(seed: int, spec: ClusterSpec, lasts: float = STORM_S) -> Iterator[tuple[Attack, ...]]:
    """Yields storms without end. A run begins the next storm after the cluster has healed."""
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
    random, owners = Random(f"pods {seed}"), Random(f"owners {seed}")
    at, number, staying = 0.0, 0, 0
    while (at := at + random.expovariate(_PODS_A_SECOND)) < duration:
        number += 1
        fate = random.choices(list(Fate), (0.42, 0.23, 0.18, 0.06, 0.06, 0.05))[0]
        if fate is Fate.STAY and (staying := staying + 1) > _MOST_STAYING:
            fate = Fate.DELETE
        cpus = 1 if fate is Fate.STAY else random.choices((1, 2, 4), (0.7, 0.22, 0.08))[0]
        gpus = random.choices((0, 1, 2), (0.85, 0.08, 0.07))[0]
        partition = random.choices((MAIN, LOW, GRACEFUL, HIGH), (0.3, 0.3, 0.25, 0.15))[0]
        if random.random() < _GUESTS:
            partition, cpus, gpus = "", 1, 0
        after, grace = random.uniform(2.0, 14.0), random.randint(1, MOST_GRACE_S)
        owner = "alice" if owners.random() < _ALICES else "root"
        yield PodPlan(at, f"p{number}", cpus, gpus, fate, after, partition, grace, owner)


def gangs(seed: int, duration: float) -> Iterator[GangPlan]:
    random = Random(f"gangs {seed}")
    at, number = 0.0, 0
    while (at := at + random.expovariate(1 / _GANGS_APART_S)) < duration:
        number += 1
        size = random.choice(_GANG_SIZES)
        comes = tuple(random.uniform(0.0, _GANG_COMES_S) for _ in range(size))
        fate = random.choices(list(GangFate), (0.35, 0.2, 0.2, 0.25))[0]
        partition = random.choices((MAIN, LOW, GRACEFUL, HIGH), (0.3, 0.25, 0.2, 0.25))[0]
        owner = random.choice(("alice", "root"))
        yield GangPlan(at, f"g{number}", comes, fate, random.uniform(3.0, 15.0), partition, owner)


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
    """Yields outages of nodes. Two outages never overlap."""
    random = Random(f"outages {seed}")
    at = random.expovariate(1 / _DRAINS_APART_S)
    while at < duration:
        lasts = random.uniform(5.0, 45.0)
        yield OutagePlan(at, random.choice(spec.node_names), random.choice(list(Outage)), lasts)
        at += lasts + random.expovariate(1 / _DRAINS_APART_S)


def odd_pods(seed: int, duration: float) -> Iterator[OddPlan]:
    """Yields Pods that can never be bound: bursts of Pods of a greedy owner, and single Pods."""
    yield from _bursts(seed, duration)
    for why, apart, lasts, partition in _SINGLE:
        random = Random(f"{why} {seed}")
        at, number = random.uniform(0.0, apart), 0
        while at < duration:
            number += 1
            comment = DENIED if why is Odd.DENIED else ""
            yield OddPlan(at, f"{why}-{number}", why, "root", partition, comment, lasts)
            at += random.expovariate(1 / apart)


def _bursts(seed: int, duration: float) -> Iterator[OddPlan]:
    """Yields bursts of two kinds in turn: jobs in a partition in state DOWN, and jobs held by
    job_submit.lua."""
    random = Random(f"bursts {seed}")
    at, burst = random.uniform(5.0, 15.0), 0
    while at < duration:
        burst += 1
        where, why = (CLOSED, "") if burst % 2 else (MAIN, HELD)
        for number in range(_BURST):
            name = f"greedy-{burst}-{number}"
            yield OddPlan(at, name, Odd.GREEDY, "bob", where, why, _BURST_LASTS_S)
        name, late = f"modest-{burst}", random.uniform(1.0, 5.0)
        yield OddPlan(at + late, name, Odd.MODEST, "alice", where, why, _BURST_LASTS_S - late)
        at += _BURSTS_APART_S * random.uniform(0.8, 1.2)


def mischief(seed: int, duration: float) -> Iterator[MischiefPlan]:
    random = Random(f"mischief {seed}")
    at = 0.0
    while (at := at + random.expovariate(1 / _MISCHIEF_APART_S)) < duration:
        how = random.choices(list(Mischief), (0.3, 0.25, 0.1, 0.1, 0.15, 0.1))[0]
        yield MischiefPlan(at, how, random.random())
