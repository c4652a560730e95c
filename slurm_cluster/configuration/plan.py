"""Finds the differences between a wanted and the running configuration, and the jobs that a change would
end. This module does no I/O."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from slurm_client.hostlist import compress
from slurm_cluster.configuration import needs
from slurm_cluster.configuration.needs import Need, Row
from slurm_cluster.configuration.slurm_conf import SlurmConf
from slurm_cluster.jwks import SLURM_JWKS, SLURM_KEY, known

SLURM_CONF: Final = "slurm.conf"
GRES_CONF: Final = "gres.conf"
Attributes = Mapping[str, str]
_Value = TypeVar("_Value")
_SHOWN: Final = 20
_KEEPS_PARTITIONS: Final = "keeppartinfo"
_KEEPS_STATES: Final = "keeppartstate"
"""Values of ReconfigFlags. KeepPartInfo keeps partitions and their states, KeepPartState keeps only the
states."""
_SIZE: Final = (
    *("boards", "corespersocket", "cpus", "procs"),
    *("sockets", "socketsperboard", "threadspercore"),
)
"""Keys of a node's size. slurmctld ends a node's jobs if the size changes ("change in socket/core
configuration of ...")."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """slurm.conf, and the other files by name."""

    slurm_conf: SlurmConf
    files: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Job:
    """A pending or running job."""

    id: str
    partitions: frozenset[str]
    nodes: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the configuration. Jobs in `partition` would lose their partition, and jobs on `nodes`
    would lose their nodes. Both are empty if no job loses anything."""

    what: str
    row: Row
    words: str
    partition: str = ""
    nodes: frozenset[str] = frozenset()

    def touches(self, job: Job) -> bool:
        """Returns True if slurmctld would end the job, or leave the job without a partition."""
        return self.partition in job.partitions or not self.nodes.isdisjoint(job.nodes)


@dataclass(frozen=True, slots=True)
class Plan:
    """All changes, and the jobs that would end."""

    changes: tuple[Change, ...]
    jobs: tuple[str, ...] = ()

    @property
    def need(self) -> Need:
        return max((change.row.need for change in self.changes), default=Need.NOTHING)

    @property
    def by_hand(self) -> tuple[Change, ...]:
        """The changes that a person must carry out."""
        return tuple(change for change in self.changes if change.row.need is Need.BY_HAND)

    def lines(self) -> list[str]:
        """Returns the plan as lines of text."""
        if not self.changes:
            return ["nothing changes"]
        lines = [_in_words(change) for change in self.changes]
        if self.jobs:
            lines.append(f"would end jobs: {_listed(self.jobs)}")
        return [*lines, f"needs: {_NEEDS[self.need]}"]


_NEEDS: Final = {
    Need.NOTHING: "nothing",
    Need.RECONFIGURE: "scontrol reconfigure",
    Need.RESTART: "a restart of slurmctld, then scontrol reconfigure",
    Need.RESTART_ALL: "a restart of slurmctld, then a restart of every slurmd by you",
    Need.RESTART_WITHOUT_RECONFIGURE: (
        "a restart of slurmctld, without scontrol reconfigure, then a restart of every slurmd by you"
    ),
    Need.BY_HAND: "a person",
}


def plan(
    running: Configuration, wanted: Configuration, jobs: Iterable[Job], live: Mapping[str, str]
) -> Plan:
    """Returns the changes in a fixed order, and the jobs that would end. `live` has the state of each
    partition in slurmctld."""
    changes = (
        *_settings(running.slurm_conf, wanted.slurm_conf),
        *_nodes(running.slurm_conf.nodes(), wanted.slurm_conf.nodes()),
        *_partitions(running.slurm_conf.partitions(), wanted.slurm_conf.partitions()),
        *_lost_by_a_start(running.slurm_conf.partitions(), wanted.slurm_conf, live),
        *_others(running.slurm_conf.others(), wanted.slurm_conf.others()),
        *_files(running.files, wanted.files),
    )
    touched = (job.id for job in jobs if any(change.touches(job) for change in changes))
    return Plan(tuple(changes), tuple(touched))


def _in_words(change: Change) -> str:
    need = change.row.need
    return f"{change.what}: {change.words}" + (
        f" ({change.row.why})" if need > Need.RECONFIGURE and change.row.why else ""
    )


def _listed(names: tuple[str, ...]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _settings(running: SlurmConf, wanted: SlurmConf) -> Iterator[Change]:
    before, after = running.settings(), wanted.settings()
    spelt = {key.lower(): key for conf in (running, wanted) for key in _keys(conf)}
    for key, old, new in _changed(before, after):
        words = f"{','.join(old or ()) or 'not set'} -> {','.join(new or ()) or 'not set'}"
        yield Change(spelt[key], needs.of_setting(key), words)


def _changed(
    running: Mapping[str, _Value], wanted: Mapping[str, _Value]
) -> Iterator[tuple[str, _Value | None, _Value | None]]:
    """Yields each name with different values in the two mappings, in sorted order, with both values. A
    missing value is None."""
    for name in sorted(running.keys() | wanted.keys()):
        old, new = running.get(name), wanted.get(name)
        if old != new:
            yield name, old, new


def _keys(conf: SlurmConf) -> Iterator[str]:
    return (key for line in conf.lines for key, _ in line.pairs)


def _nodes(running: Mapping[str, Attributes], wanted: Mapping[str, Attributes]) -> Iterator[Change]:
    """Yields the changes of nodes. Nodes with equal changes are joined in one change."""
    alike: dict[tuple[str, bool, Row], list[str]] = {}
    for name, old, new in _changed(running, wanted):
        loses = old is not None and (new is None or _size(old) != _size(new))
        alike.setdefault((_difference(old, new), loses, _row_of(old, new)), []).append(name)
    for (words, loses, row), names in alike.items():
        yield Change(f"node {compress(names)}", row, words, nodes=frozenset(names if loses else ()))


def _row_of(old: Attributes | None, new: Attributes | None) -> Row:
    """Returns the action that a node's change needs to take effect, with the reason (`needs.Row`)."""
    if old is None or new is None:
        return needs.PLAIN
    if old.get("gres") != new.get("gres"):
        return needs.DEVICES
    return needs.of_setting("slurmdport") if old.get("port") != new.get("port") else needs.PLAIN


def _size(attributes: Attributes) -> list[str | None]:
    return [attributes.get(each) for each in _SIZE]


def _partitions(running: Mapping[str, Attributes], wanted: Mapping[str, Attributes]) -> Iterator[Change]:
    for name, old, new in _changed(running, wanted):
        lost = name if new is None else ""
        yield Change(f"partition {name}", needs.PLAIN, _difference(old, new), partition=lost)


def _lost_by_a_start(
    running: Mapping[str, Attributes], wanted: SlurmConf, live: Mapping[str, str]
) -> Iterator[Change]:
    """Yields the partitions and states that a starting slurmctld drops, because they come from scontrol
    and not from slurm.conf."""
    flags = ",".join(wanted.settings().get("reconfigflags", ())).lower().split(",")
    if _KEEPS_PARTITIONS in flags:
        return
    after = wanted.partitions()
    for name, state in sorted(live.items()):
        if name not in running.keys() | after.keys():
            words = "is removed: scontrol created the partition, and slurm.conf lacks it"
            yield Change(f"partition {name}", needs.PLAIN, words, partition=name)
        elif name in running.keys() & after.keys() and _KEEPS_STATES not in flags:
            by_file = _state(after[name])
            if state not in {by_file, _state(running[name])}:
                yield Change(f"partition {name}", needs.PLAIN, f"state {state} by scontrol -> {by_file}")


def _state(partition: Attributes) -> str:
    return partition.get("state", "UP").upper()


def _others(running: Mapping[str, Attributes], wanted: Mapping[str, Attributes]) -> Iterator[Change]:
    for name, old, new in _changed(running, wanted):
        yield Change(name, needs.PLAIN, _difference(old, new))


def _files(running: Mapping[str, bytes], wanted: Mapping[str, bytes]) -> Iterator[Change]:
    for name, old, new in _changed(running, wanted):
        if name != SLURM_CONF:
            words = "is new" if old is None else "is removed" if new is None else "has other content"
            replaced = name in {SLURM_KEY, SLURM_JWKS} and _replaces_keys(running, wanted)
            row = needs.DEVICES if name == GRES_CONF else needs.PLAIN
            yield Change(name, needs.OTHER_KEYS if replaced else row, words)


def _replaces_keys(running: Mapping[str, bytes], wanted: Mapping[str, bytes]) -> bool:
    """Returns True if all keys are replaced. A rotation does not do so, because each of its steps keeps
    a key."""
    before = known(running)
    return bool(before) and before.isdisjoint(known(wanted))


def _difference(old: Attributes | None, new: Attributes | None) -> str:
    if old is None:
        return "is new"
    if new is None:
        return "is removed"
    keys = sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))
    return ", ".join(f"{key} {old.get(key, 'not set')} -> {new.get(key, 'not set')}" for key in keys)
