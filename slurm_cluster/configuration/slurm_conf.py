"""slurm.conf(5) as text: its lines, its settings, and the nodes and partitions that it names.

Only the form is checked here: a line of another form is kept as it is, for slurmctld to judge."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from slurm_client import hostlist

RECORDS: Final = frozenset({"nodename", "partitionname", "nodeset", "downnodes"})
"""Keys that begin the line of an object, and may be given more than once."""
DEFAULT: Final = "DEFAULT"
"""The name whose attributes the lines after it begin with."""
_PAIR: Final = re.compile(r'([\w.]+)\s*[-+*/]?=\s*(?:"([^"]*)"|(\S+))\s*')
_INCLUDE: Final = re.compile(r"include\s+(\S+)\s*", re.IGNORECASE)
_DEEPEST: Final = 8
Include = Callable[[str], str]
"""Returns the text of an included file. Raises LookupError where there is none."""
Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Line:
    """One line: its keys and values in order, and the line as it was written."""

    pairs: Pairs
    text: str

    @property
    def kind(self) -> str:
        """The first key, in lower case; "" where the line has no such form."""
        return self.pairs[0][0].lower() if self.pairs else ""


@dataclass(frozen=True, slots=True)
class SlurmConf:
    """All lines, those of included files in their place."""

    lines: tuple[Line, ...]

    def settings(self) -> dict[str, tuple[str, ...]]:
        """The values by key, in lower case; several where a key is repeated (SlurmctldHost)."""
        found: dict[str, tuple[str, ...]] = {}
        for line in self.lines:
            if line.kind not in RECORDS:
                for key, value in line.pairs:
                    found[key.lower()] = (*found.get(key.lower(), ()), value)
        return found

    def hosts(self) -> tuple[str, ...]:
        """The names of the slurmctlds, the first one first."""
        return tuple(each.partition("(")[0] for each in self.settings().get("slurmctldhost", ()))

    def alone(self, host: str) -> str:
        """The text with one slurmctld alone: by it Slurm's commands ask that one, and no other."""
        return "".join(f"{line.text}\n" for line in self.lines if not _of_another(line, host))

    def nodes(self) -> dict[str, Mapping[str, str]]:
        """The attributes of each node by its name. A name that is no hostlist is taken as it is."""
        return {node: attributes for name, attributes in self._of("nodename") for node in _names(name)}

    def partitions(self) -> dict[str, Mapping[str, str]]:
        """The attributes of each partition by its name."""
        return dict(self._of("partitionname"))

    def others(self) -> dict[str, Mapping[str, str]]:
        """The attributes of each node set and of nodes that are down, by kind and name."""
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
    """Reads slurm.conf. Raises LookupError where it includes what there is not."""
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
                raise LookupError(f"{found[1]} is included by itself")
            yield from _lines(include(found[1]), include, deepest - 1)
        elif line:
            yield Line(_pairs(line), line)


def _pairs(line: str) -> Pairs:
    """Returns the pairs of a line; none where a part of it is no pair."""
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
