"""Compares gres.conf with the nodes of slurm.conf.

slurmctld does not read gres.conf, so the temporary slurmctld of `trial` finds no contradiction between
the two files. slurmd ends if a device file of gres.conf is missing. If slurmd reports fewer devices of a
node than slurm.conf has, slurmctld sets the node out of service.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from slurm_client import gres, hostlist
from slurm_cluster.configuration.slurm_conf import Line, SlurmConf

_NO_DETECTION: Final = frozenset({"", "off"})


@dataclass(frozen=True, slots=True)
class _Devices:
    """One line of gres.conf."""

    name: str
    type: str
    detects: bool
    """True if slurmd detects devices (AutoDetect)."""
    files: str
    count: int | None
    """Number of devices; None if neither File nor Count gives a plain number."""

    def has_type(self, kind: str) -> bool:
        """Returns True if slurmd counts these devices for the type `kind` of a Gres in slurm.conf. A
        `kind` of "" means any type."""
        return not kind or self.type == kind


class _GresConf:
    """The lines of gres.conf for each node."""

    def __init__(self, lines: Iterable[Line]) -> None:
        self._by_node = defaultdict[str, list[_Devices]](list)
        """Lines by the name of the node. Lines without NodeName apply to all nodes, and have the
        key ""."""
        for line in lines:
            found = {key.lower(): value for key, value in line.pairs}
            for node in _names(found.get("nodename", "")) or ("",):
                self._by_node[node].append(_devices(found))

    def of(self, node: str) -> list[_Devices]:
        return [*self._by_node.get("", []), *self._by_node.get(node, [])]

    def names(self, *, with_files: bool = False) -> frozenset[str]:
        """Returns the names of all devices. If `with_files` is True, returns only names that have a
        device file on at least one node."""
        every = [each for node in self._by_node.values() for each in node]
        return frozenset(each.name for each in every if each.files or not with_files) - {""}


def contradictions(lines: Iterable[Line], conf: SlurmConf) -> list[str]:
    """Returns the contradictions between gres.conf and slurm.conf, with the nodes of each
    contradiction."""
    given = _GresConf(lines)
    with_files = given.names(with_files=True)
    alike = defaultdict[str, list[str]](list)
    for node, attributes in conf.nodes().items():
        devices, wanted = given.of(node), gres.parse(attributes.get("gres", "").lower())
        for words in (*_too_many(devices, wanted), *_too_few(devices, wanted, with_files)):
            alike[words].append(node)
    unknown = given.names() - {*conf.settings().get("grestypes", ("",))[-1].lower().split(",")}
    return [
        *(f"Name={name} is not in GresTypes: Slurm counts no such device" for name in sorted(unknown)),
        *(f"on {hostlist.compress(nodes)}: {words}" for words, nodes in alike.items()),
    ]


def _devices(found: Mapping[str, str]) -> _Devices:
    files = found.get("file", "")
    count = found.get("count") or (str(len(_names(files))) if files else "")
    return _Devices(
        name=found.get("name", "").lower(),
        type=found.get("type", "").lower(),
        detects=found.get("autodetect", "").lower() not in _NO_DETECTION,
        files=files,
        count=int(count) if count.isdecimal() else None,
    )


def _names(expression: str) -> tuple[str, ...]:
    try:
        return hostlist.expand(expression)
    except ValueError:
        return (expression,)


def _too_many(devices: Iterable[_Devices], wanted: Iterable[tuple[str, str, int]]) -> Iterator[str]:
    names = {name for name, _, _ in wanted}
    for each in devices:
        if each.files and each.name not in names:
            yield (
                f"slurm.conf has no {each.name} there, and slurmd ends without {each.files}:"
                " limit this line by NodeName="
            )


def _too_few(
    devices: list[_Devices], wanted: Iterable[tuple[str, str, int]], with_files: frozenset[str]
) -> Iterator[str]:
    if any(each.detects for each in devices):
        return
    for name, kind, count in wanted:
        counts = [each.count for each in devices if each.name == name and each.has_type(kind)]
        found = sum(each or 0 for each in counts)
        if name in with_files and None not in counts and found < count:
            device = f"{name}:{kind}" if kind else name
            yield (
                f"{found} {device} by gres.conf, and {count} by slurm.conf:"
                " slurmctld sets a node with fewer devices out of service"
            )
