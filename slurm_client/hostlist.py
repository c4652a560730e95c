"""Slurm's hostlist expressions: "gpu[01-03,07],x5" and the names it stands for, both ways.

The grammar is scontrol(1)'s `show hostnames`: comma-separated names with bracketed lists of numbers
and ranges, of which a leading zero fixes the width; several brackets in one name multiply.
"""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_PART = re.compile(r"\[([^\[\]]*)\]|([^\[\]]+)")
_TRAILING_NUMBER = re.compile(r"^(.*?)(\d+)$")


MAX_NAMES = 100_000


def expand(expression: str) -> tuple[str, ...]:
    """All names, in the expression's order; () for "", "(null)" and "None assigned".

    ValueError for what is no hostlist, or stands for more than MAX_NAMES names (Slurm itself takes
    65,536 nodes): an expression of a few bytes could ask for all memory.
    """
    if expression in {"", "(null)", "None assigned"}:
        return ()
    names = itertools.chain.from_iterable(map(_expand_element, _elements(expression)))
    return _bounded(names)


def _bounded(names: Iterable[str]) -> tuple[str, ...]:
    first = tuple(itertools.islice(names, MAX_NAMES + 1))
    if len(first) > MAX_NAMES:
        raise ValueError(f"more than {MAX_NAMES} node names")
    return first


def compress(names: Iterable[str]) -> str:
    """The shortest of one bracket for each prefix and width: "gpu[01-03,07],x5"; sorted, unique."""
    groups: dict[tuple[str, int], set[int]] = defaultdict(set)
    plain: set[str] = set()
    for name in names:
        match = _TRAILING_NUMBER.match(name)
        if match:
            groups[match[1], len(match[2])].add(int(match[2]))
        else:
            plain.add(name)
    bracketed = (_bracket(prefix, width, sorted(n)) for (prefix, width), n in groups.items())
    return ",".join(sorted([*plain, *bracketed]))


def _elements(expression: str) -> Iterator[str]:
    """The expression cut at the commas outside of brackets."""
    depth = start = 0
    for at, character in enumerate(expression):
        depth += (character == "[") - (character == "]")
        if character == "," and depth == 0:
            yield expression[start:at].strip()
            start = at + 1
    yield expression[start:].strip()


def _expand_element(element: str) -> Iterator[str]:
    parts = [
        _bounded(_numbers(bracket)) if bracket else (literal,)
        for bracket, literal in _PART.findall(element)
    ]
    return ("".join(combination) for combination in itertools.product(*parts)) if parts else iter(())


def _numbers(ranges: str) -> Iterator[str]:
    for one in ranges.split(","):
        first, dash, last = one.partition("-")
        if not dash:
            yield first
            continue
        width = len(first) if first.startswith("0") else 0
        yield from (f"{number:0{width}d}" for number in range(int(first), int(last) + 1))


def _bracket(prefix: str, width: int, numbers: list[int]) -> str:
    # Consecutive numbers share number - position.
    runs = itertools.groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0])
    spans = [[number for _, number in run] for _, run in runs]
    texts = [
        f"{span[0]:0{width}d}" + (f"-{span[-1]:0{width}d}" if len(span) > 1 else "") for span in spans
    ]
    return f"{prefix}{texts[0]}" if len(numbers) == 1 else f"{prefix}[{','.join(texts)}]"
