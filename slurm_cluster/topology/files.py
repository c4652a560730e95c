"""Writes and reads topology.yaml(5) and topology.conf(5). A new or removed Node changes only one line of
a file."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import orjson
import yaml

from slurm_client.hostlist import compress, expand
from slurm_cluster.topology.model import Kind, Topology, Unit, in_order
from wellknown.quoting import quoted, words_of

YAML: Final = "topology.yaml"
"""The file for Slurm 25.05 and later. These releases ignore topology.conf if topology.yaml exists."""
CONF: Final = "topology.conf"


class WrongTopology(ValueError):
    """Raised for a file without a topology of a supported kind."""


class Conf(NamedTuple):
    """The text of topology.conf, and the names of omitted units."""

    text: str
    left_out: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Words:
    """The words for the parts of one kind of topology, in both files."""

    units: str
    unit: str
    conf: str


_WORDS: Final = {
    Kind.TREE: _Words("switches", "switch", "SwitchName"),
    Kind.BLOCK: _Words("blocks", "block", "BlockName"),
}


def to_yaml(topology: Topology) -> str:
    """Returns topology.yaml. Slurm accepts units without nodes in topology.yaml, and blocks of any
    size."""
    words = _WORDS[topology.kind]
    head = [f"- topology: {_quoted(topology.name)}", "  cluster_default: true", f"  {topology.kind}:"]
    sizes = [f"    block_sizes: {list(topology.block_sizes)}"] if topology.block_sizes else []
    units = [f"    - {_flow(unit, words.unit)}" for unit in topology.units]
    return "\n".join([*head, *sizes, f"    {words.units}:", *units, ""])


def _flow(unit: Unit, word: str) -> str:
    fields = {word: unit.name, "children": compress(unit.children), "nodes": compress(unit.nodes)}
    return "{" + ", ".join(f"{key}: {_quoted(text)}" for key, text in fields.items() if text) + "}"


def _quoted(text: str) -> str:
    """Returns a quoted text, because names like 12, 1e3 and null mean something else in YAML without
    quotes."""
    return orjson.dumps(text).decode()


def to_conf(topology: Topology) -> Conf:
    """Returns topology.conf for Slurm 24.11. Empty units, and units smaller than a base block, are left
    out."""
    words, kept = _WORDS[topology.kind], _taken_by_24_11(topology)
    lines = [
        " ".join(f"{key}={text}" for key, text in _fields(unit, words.conf, kept) if text)
        for unit in topology.units
        if unit.name in kept
    ]
    sizes = ",".join(map(str, topology.block_sizes))
    lines += [f"BlockSizes={sizes}"] if sizes and lines else []
    left_out = tuple(unit.name for unit in topology.units if unit.name not in kept)
    return Conf("".join(f"{line}\n" for line in lines), left_out)


def _fields(unit: Unit, word: str, kept: set[str]) -> Iterator[tuple[str, str]]:
    yield word, unit.name
    yield "Switches", compress(child for child in unit.children if child in kept)
    yield "Nodes", compress(unit.nodes)


def _taken_by_24_11(topology: Topology) -> set[str]:
    least = topology.block_sizes[0] if topology.block_sizes else 1
    kept = {unit.name for unit in topology.units if len(unit.nodes) >= least}
    parents = topology.parents
    for name in [*kept]:
        while (parent := parents.get(name)) is not None and parent not in kept:
            kept.add(parent)
            name = parent  # noqa: PLW2901 -- up to the root
    return kept


def read(text: str) -> Topology:
    """Returns the topology in either file. Raises WrongTopology."""
    stripped = "\n".join(line.partition("#")[0].rstrip() for line in text.splitlines()).strip()
    if stripped.startswith(("-", "[")):
        return _read_yaml(text)
    return _read_conf(stripped.splitlines())


def _read_yaml(text: str) -> Topology:
    try:
        every: Any = yaml.safe_load(text)
        topologies = [one for one in every if any(kind.value in one for kind in Kind)]
        chosen = next((one for one in topologies if one.get("cluster_default")), topologies[0])
        kind = next(kind for kind in Kind if kind.value in chosen)
        body, words = chosen[kind.value], _WORDS[kind]
        units = tuple(_unit(each, words.unit, "children", "nodes") for each in body[words.units])
        sizes = tuple(int(size) for size in body.get("block_sizes") or ())
        return Topology(kind, units, sizes, str(chosen["topology"]))
    except (yaml.YAMLError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise WrongTopology(f"not a topology.yaml with a tree or blocks: {words_of(error)}") from error


def _read_conf(lines: Iterable[str]) -> Topology:
    try:
        fields = [_pairs(line) for line in lines if line.strip()]
        tree = any("switchname" in each for each in fields)
        kind = Kind.TREE if tree else Kind.BLOCK
        word = _WORDS[kind].conf.lower()
        units = tuple(_unit(each, word, "switches", "nodes") for each in fields if word in each)
        sizes = next((each["blocksizes"] for each in fields if "blocksizes" in each), "")
        return Topology(kind, units, tuple(int(size) for size in sizes.split(",") if size))
    except ValueError as error:
        raise WrongTopology(f"not a topology.conf with a tree or blocks: {error}") from error


def _pairs(line: str) -> dict[str, str]:
    words = [word.partition("=") for word in line.split()]
    if wrong := [name for name, sign, _ in words if not sign]:
        raise ValueError(f"{quoted(wrong[0])} is not NAME=VALUE")
    return {name.lower(): value for name, _, value in words}


def _unit(fields: Mapping[str, Any], name: str, children: str, nodes: str) -> Unit:
    listed = (in_order(expand(str(fields.get(key) or ""))) for key in (nodes, children))
    return Unit(str(fields[name]), *listed)
