"""Reads slurm.conf(5) as a text: its lines, settings, nodes and partitions.

Only the format is checked here. A line that this module cannot parse is kept unchanged, so that
slurmctld checks the line.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from slurm_client import hostlist

RECORDS: Final = frozenset({"nodename", "partitionname", "nodeset", "downnodes"})
"""Keys that start the line of an object. Such keys may be repeated."""
DEFAULT: Final = "DEFAULT"
"""Name of an object with default attributes for the following lines."""
_PAIR: Final = re.compile(r'([\w.]+)\s*[-+*/]?=\s*(?:"([^"]*)"|(\S+))\s*')
_INCLUDE: Final = re.compile(r"include\s+(\S+)\s*", re.IGNORECASE)
_DEEPEST: Final = 8
Include = Callable[[str], str]
"""Returns the text of an included file. Raises LookupError if the file is missing."""
Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Line:
    """One line: keys and values in order, and the original text."""

    pairs: Pairs
    text: str

    @property
    def kind(self) -> str:
        """The first key, in lower case; "" for a line of another format."""
        return self.pairs[0][0].lower() if self.pairs else ""


@dataclass(frozen=True, slots=True)
class SlurmConf:
    """All lines of slurm.conf. The lines of an included file replace the Include line."""

    lines: tuple[Line, ...]

    def settings(self) -> dict[str, tuple[str, ...]]:
        """The values of each key. The keys are in lower case. A repeated key, like SlurmctldHost, has
        several values."""
        found: dict[str, tuple[str, ...]] = {}
        for line in self.lines:
            if line.kind not in RECORDS:
                for key, value in line.pairs:
                    found[key.lower()] = (*found.get(key.lower(), ()), value)
        return found

    def hosts(self) -> tuple[str, ...]:
        """Names of the slurmctlds, in order."""
        return tuple(each.partition("(")[0] for each in self.settings().get("slurmctldhost", ()))

    def alone(self, host: str) -> str:
        """The text of slurm.conf with `host` as the only slurmctld, so that Slurm's commands ask no
        other slurmctld."""
        return "".join(f"{line.text}\n" for line in self.lines if not _of_another(line, host))

    def nodes(self) -> dict[str, Mapping[str, str]]:
        """Attributes of each node, by name. A name that is no hostlist is used unchanged."""
        return {node: attributes for name, attributes in self._of("nodename") for node in _names(name)}

    def partitions(self) -> dict[str, Mapping[str, str]]:
        """Attributes of each partition, by name."""
        return dict(self._of("partitionname"))

    def others(self) -> dict[str, Mapping[str, str]]:
        """Attributes of each node set and of each DownNodes line, by kind and name."""
        kinds = ("nodeset", "downnodes")
        return {f"{kind}={name}": attributes for kind in kinds for name, attributes in self._of(kind)}

    def _of(self, kind: str) -> Iterator[tuple[str, Mapping[str, str]]]:
        defaults: dict[str, str] = {}
        for line in self.lines:
            if line.kind != kind:
                continue
            (_, name), *rest = line.pairs
            attributes = {key.lower(): value for key, value in rest}
            if name.upper() == DEFAULT:
                defaults |= attributes
            else:
                yield name, defaults | attributes


def parse(text: str, include: Include) -> SlurmConf:
    """Parses slurm.conf. Raises LookupError if an included file is missing."""
    return SlurmConf(tuple(_lines(text, include, _DEEPEST)))


def render(lines: Iterable[Pairs]) -> str:
    """Returns the text of lines."""
    return "".join(f"{' '.join(_pair(key, value) for key, value in pairs)}\n" for pairs in lines)


def _pair(key: str, value: str) -> str:
    return f'{key}="{value}"' if re.search(r"\s", value) else f"{key}={value}"


def _lines(text: str, include: Include, deepest: int) -> Iterator[Line]:
    for raw in text.replace("\\\n", " ").splitlines():
        line = re.sub(r"(?<!\\)#.*", "", raw).strip()
        if found := _INCLUDE.fullmatch(line):
            if deepest == 0:
                raise LookupError(f"{found[1]} includes itself")
            yield from _lines(include(found[1]), include, deepest - 1)
        elif line:
            yield Line(_pairs(line), line)


def _pairs(line: str) -> Pairs:
    """Returns the pairs of a line. If any part of the line is no pair, returns no pairs."""
    pairs, at = list[tuple[str, str]](), 0
    while at < len(line):
        found = _PAIR.match(line, at)
        if found is None:
            return ()
        pairs.append((found[1], found[3] if found[2] is None else found[2]))
        at = found.end()
    return tuple(pairs)


def _of_another(line: Line, host: str) -> bool:
    return line.kind == "slurmctldhost" and line.pairs[0][1].partition("(")[0] != host


def _names(expression: str) -> tuple[str, ...]:
    try:
        return hostlist.expand(expression)
    except ValueError:
        return (expression,)
