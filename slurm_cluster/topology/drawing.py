"""Draws a topology as an SVG picture. Equal topologies and states give byte-identical pictures.

Each unit (switch or block) is a row, and each node is a cell. A cell either shows the node's name, or is
a small square with the name as a tooltip. A letter shows the state in addition to the colour.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from html import escape
from typing import Final

from slurm_cluster.topology.model import Kind, Topology, Unit

_MOST_NAMED: Final = 64
"""Maximum number of nodes in a picture whose cells show names."""
_WIDTH: Final = 1000
_LINE: Final = 22
_INDENT: Final = 26
_MARGIN: Final = 16
_NAMES_AT: Final = 300
"""Horizontal position of the first cell."""
_NAMED_CELL: Final = 110
_SQUARE: Final = 16
_GAP: Final = 3
_LONGEST_TEXT: Final = 34
_ONE_LETTER: Final = 7.2


class Look(Enum):
    """Display of a node's state: the letter and the colour of the cell, and the text in the legend."""

    IDLE = ("", "#ffffff", "idle")
    MIXED = ("m", "#b7d7f2", "mixed: partly allocated")
    ALLOCATED = ("a", "#2f7fc1", "allocated")
    DRAINED = ("d", "#f0c14b", "drained or draining")
    DOWN = ("x", "#d1495b", "down or not responding")
    OFF = ("o", "#d9d9d9", "powered down")
    UNKNOWN = ("?", "#f2ecd8", "Slurm does not know this node")
    PLAIN = ("", "#e6eef5", "state not requested")

    def __init__(self, letter: str, colour: str, word: str) -> None:
        self.letter, self.colour, self.word = letter, colour, word


def look_of(state: str) -> Look:
    """Returns the display of a state from sinfo ("mixed", "allocated*", "draining", "idle~")."""
    word = state.lower()
    if word.startswith(("drain", "maint", "fail")):
        return Look.DRAINED
    if "*" in word or word.startswith(("down", "inval", "perfctrs", "unk")):
        return Look.DOWN
    if word.endswith(("~", "%", "!")) or word.startswith("power"):
        return Look.OFF
    if word.startswith(("alloc", "comp")):
        return Look.ALLOCATED
    return Look.MIXED if word.startswith("mix") else Look.IDLE


@dataclass(frozen=True, slots=True)
class _Row:
    """A line of the picture, or several lines for many cells."""

    depth: int
    name: str
    nodes: Sequence[str]
    below: Sequence[str]
    """All nodes below the switch, including its own nodes."""


def draw(topology: Topology, states: Mapping[str, str] | None = None) -> str:
    """Returns the picture. `states` has sinfo's state of each node that Slurm knows. If None, the
    picture shows no states."""
    rows = list(_rows(topology))
    nodes = {node for unit in topology.units for node in unit.nodes}
    looks = {node: _look(node, states) for node in nodes}
    named = len(nodes) <= _MOST_NAMED
    y, parts = _MARGIN + 2 * _LINE, list[str]()
    for row in rows:
        parts += _drawn(row, looks, named, y)
        y += _height(row, named)
    legend = list(_legend(looks.values(), y + _LINE))
    height = y + _LINE * (len(legend) // 2 + 1) + _MARGIN
    title = (
        f"{topology.kind} {topology.name}: {len(topology.units)} {_units(topology)}, {len(nodes)} nodes"
    )
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}"'
        f' viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" font-size="12">'
    )
    ground = f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>'
    words = _text(_MARGIN, _MARGIN + _LINE // 2, title, 'font-size="15" font-weight="bold"')
    return "\n".join([head, ground, words, *parts, *legend, "</svg>", ""])


def _units(topology: Topology) -> str:
    sizes = ", ".join(map(str, topology.block_sizes)) or "any size"
    return "switches" if topology.kind is Kind.TREE else f"blocks of {sizes}"


def _look(node: str, states: Mapping[str, str] | None) -> Look:
    if states is None:
        return Look.PLAIN
    return look_of(states[node]) if node in states else Look.UNKNOWN


def _rows(topology: Topology) -> Iterator[_Row]:
    """Yields the switches in tree order, a parent before its children."""
    units, parents = topology.by_name, topology.parents
    waiting = [(0, unit) for unit in reversed(topology.units) if unit.name not in parents]
    while waiting:
        depth, unit = waiting.pop()
        yield _Row(depth, unit.name, unit.nodes, tuple(_below(unit, units)))
        children = (units[child] for child in reversed(unit.children) if child in units)
        waiting += [(depth + 1, child) for child in children]


def _below(unit: Unit, units: Mapping[str, Unit]) -> Iterator[str]:
    waiting = [unit]
    while waiting:
        one = waiting.pop()
        yield from one.nodes
        waiting += [units[child] for child in one.children if child in units]


def _columns(named: bool) -> int:
    width = _NAMED_CELL if named else _SQUARE + _GAP
    return (_WIDTH - _MARGIN - _NAMES_AT) // width


def _height(row: _Row, named: bool) -> int:
    lines = max(1, -(-len(row.nodes) // _columns(named)))
    return max(_LINE, lines * _cell_height(named) + _GAP)


def _cell_height(named: bool) -> int:
    return _LINE if named else _SQUARE + _GAP


def _drawn(row: _Row, looks: Mapping[str, Look], named: bool, y: int) -> Iterator[str]:
    x = _MARGIN + row.depth * _INDENT
    if row.depth:
        corner = x - _INDENT // 2
        yield f'<path d="M{corner} {y - 4}V{y + 11}H{x - 3}" fill="none" stroke="#9aa5b1"/>'
    count = f"{row.name} ({len(row.below)})"
    title = escape(f"{row.name}: {_summary(row.below, looks)}")
    yield f"<g><title>{title}</title>{_text(x, y + 15, _shortened(count, x))}</g>"
    if not row.nodes and row.below:
        yield from _bar(row, looks, y)
    columns = _columns(named)
    for index, node in enumerate(row.nodes):
        line, column = divmod(index, columns)
        at = y + line * _cell_height(named)
        yield _cell(node, looks[node], named, column, at)


def _bar(row: _Row, looks: Mapping[str, Look], y: int) -> Iterator[str]:
    """Yields a bar with the shares of states below a switch."""
    tally = Counter(looks[node] for node in row.below)
    whole, x = _WIDTH - _MARGIN - _NAMES_AT, float(_NAMES_AT)
    for look in Look:
        if width := whole * tally[look] / len(row.below):
            title = f"<title>{tally[look]} {escape(look.word)}</title>"
            box = f'<rect x="{x:.1f}" y="{y + 7}" width="{width:.1f}" height="8"'
            yield f'{box} fill="{look.colour}" stroke="#9aa5b1" stroke-width="0.5">{title}</rect>'
        x += width


def _cell(node: str, look: Look, named: bool, column: int, y: int) -> str:
    wide = _NAMED_CELL - _GAP if named else _SQUARE
    x = _NAMES_AT + column * (wide + _GAP)
    height = _cell_height(named) - _GAP
    box = (
        f'<rect x="{x}" y="{y}" width="{wide}" height="{height}" rx="2" fill="{look.colour}"'
        ' stroke="#5b6770"/>'
    )
    ink = 'fill="#ffffff"' if look in (Look.ALLOCATED, Look.DOWN) else 'fill="#1f2933"'
    words = " ".join(filter(None, (node if named else "", look.letter)))
    if named and len(words) * _ONE_LETTER > wide:
        words = f"{words[: int(wide / _ONE_LETTER) - 2]}… {look.letter}".strip()
    text = _text(x + 4, y + height - 5, words, f'font-size="10" {ink}') if words else ""
    return f"<g><title>{escape(f'{node}: {look.word}')}</title>{box}{text}</g>"


def _legend(looks: Iterable[Look], y: int) -> Iterator[str]:
    tally = Counter(looks)
    for line, look in enumerate(look for look in Look if tally[look]):
        at = y + line * _LINE
        box = f'<rect x="{_MARGIN}" y="{at}" width="{_SQUARE}" height="{_SQUARE}" rx="2"'
        yield f'{box} fill="{look.colour}" stroke="#5b6770"/>'
        letter = f" ({look.letter})" if look.letter else ""
        yield _text(_MARGIN + 2 * _SQUARE, at + 12, f"{look.word}{letter}: {tally[look]}")


def _summary(nodes: Sequence[str], looks: Mapping[str, Look]) -> str:
    tally = Counter(looks[node] for node in nodes)
    each = (f"{tally[look]} {look.word}" for look in Look if tally[look])
    return ", ".join(each) or "no nodes"


def _shortened(text: str, x: int) -> str:
    most = min(_LONGEST_TEXT, int((_NAMES_AT - x) / _ONE_LETTER))
    return text if len(text) <= most else f"…{text[1 - most :]}"


def _text(x: int, y: int, words: str, style: str = "") -> str:
    return f'<text x="{x}" y="{y}" {style}>{escape(words)}</text>'.replace(" >", ">")
