"""Converts Slurm's hostlist expressions, like "gpu[01-03,07],x5", to names and back.

The grammar is the same as in scontrol(1)'s `show hostnames`: comma-separated names with lists of numbers
and ranges in brackets. A leading zero fixes the number of digits. Several brackets in one name give all
combinations of their numbers.
"""

import itertools
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

from wellknown.quoting import quoted

# An expression may come from an attacker, so no pattern looks at a character more than twice. In
# _ELEMENT, the repetition of the group is `)*`, not the possessive `)*+`. Before Python 3.11.5 (Debian
# 12 has 3.11.2), a possessive group would also match "[" (CPython issue 106052).
_ELEMENT = re.compile(r"([^\[\],\s]*+(?:\[[^\[\]]*+\][^\[\],\s]*+)*)\s*+(?:,[\s,]*+|$)")
_BETWEEN = ", \t\n\r"
_PART = re.compile(r"\[([^\[\]]*+)\]|([^\[\]]++)")
_LONGEST_NUMBER = 18
_RANGE = re.compile(rf"([0-9]{{1,{_LONGEST_NUMBER}}}+)(?:-([0-9]{{1,{_LONGEST_NUMBER}}}+))?", re.ASCII)
_DIGITS = "0123456789"

MAX_NAMES = 100_000
LONGEST_NAME = 255
_TOO_LONG = f"a node name of more than {LONGEST_NAME} characters"
_TOO_MANY = "more node names than are taken"


def expand(expression: str, most: int = MAX_NAMES) -> tuple[str, ...]:
    """Returns all names, in the expression's order. Returns () for "", "(null)" and "None assigned".

    Raises ValueError if the text is no hostlist, or has a name longer than LONGEST_NAME. Also raises
    ValueError for more than `most` names (Slurm itself takes 65,536 nodes). Without these limits, an
    expression of a few bytes could fill all memory.
    """
    if expression in {"", "(null)", "None assigned"}:
        return ()
    names: list[str] = []
    for element in _elements(expression):
        names += _expand_element(element, most - len(names)) if "[" in element else (element,)
        if len(names) > most:
            raise ValueError(_TOO_MANY)
    if len(max(names, key=len, default="")) > LONGEST_NAME:
        raise ValueError(_TOO_LONG)
    return tuple(names)


def names(expressions: Iterable[str], most: int = MAX_NAMES) -> tuple[str, ...]:
    """Returns all names of several expressions."""
    return expand(",".join(expressions), most)


def count(expression: str, most: int = MAX_NAMES) -> int:
    """Returns the number of names, but does not make the names. A repeated name counts again. If the
    number is more than `most`, the result may be any number above `most`. Raises ValueError if the text
    is no hostlist, or if a name has more than LONGEST_NAME brackets."""
    number = 0
    for element in _elements(expression):
        number += _count_element(element, most) if "[" in element else 1
        if number > most:
            break
    return number


def compress(names: Iterable[str]) -> str:
    """Returns an expression with one bracket for each prefix and number of digits. The names are sorted,
    and each name appears once."""
    groups: dict[tuple[str, int], set[int]] = defaultdict(set)
    plain: set[str] = set()
    for name in names:
        prefix = name.rstrip(_DIGITS)
        number = name[len(prefix) :]
        if 0 < len(number) <= _LONGEST_NUMBER:
            groups[prefix, len(number)].add(int(number))
        else:
            plain.add(name)
    bracketed = (_bracket(prefix, width, sorted(n)) for (prefix, width), n in groups.items())
    return ",".join(sorted([*plain, *bracketed]))


def _elements(expression: str) -> Iterator[str]:
    """Splits the expression at the commas outside of brackets, and yields the parts. Skips empty
    parts."""
    at = len(expression) - len(expression.lstrip(_BETWEEN))
    while at < len(expression):
        found = _ELEMENT.match(expression, at)
        if found is None:
            raise ValueError(f"no hostlist from character {at + 1} on")
        if found[1]:
            yield found[1]
        at = found.end()


def _count_element(element: str, most: int) -> int:
    if element.count("[") > LONGEST_NAME:
        raise ValueError(_TOO_LONG)
    brackets = (found[1] for found in _PART.finditer(element) if found[2] is None)
    return math.prod(_count_bracket(ranges, most) for ranges in brackets)


def _count_bracket(ranges: str, most: int) -> int:
    number = 0
    for span, _ in _spans(ranges):
        number += len(span)
        if number > most:
            break
    return number


def _expand_element(element: str, most: int) -> Iterator[str]:
    if element.count("[") > LONGEST_NAME:
        raise ValueError(_TOO_LONG)
    parts = [
        _numbers(found[1], most) if found[2] is None else (found[2],)
        for found in _PART.finditer(element)
    ]
    if math.prod(map(len, parts)) > most:
        raise ValueError(_TOO_MANY)
    if sum(max(map(len, part)) for part in parts) > LONGEST_NAME:
        raise ValueError(_TOO_LONG)
    return map("".join, itertools.product(*parts))


def _numbers(ranges: str, most: int) -> tuple[str, ...]:
    """Returns the numbers of a bracket."""
    if ranges.count(",") >= most:
        raise ValueError(_TOO_MANY)
    numbers: list[str] = []
    for span, width in _spans(ranges):
        if len(span) > most - len(numbers):
            raise ValueError(_TOO_MANY)
        numbers += [f"{number:0{width}d}" for number in span]
    return tuple(numbers)


def _spans(ranges: str) -> Iterator[tuple[range, int]]:
    """Yields the ranges of a bracket, each with the width of its numbers."""
    for one in ranges.split(","):
        found = _RANGE.fullmatch(one)
        if found is None:
            raise ValueError(f"{quoted(one, LONGEST_NAME)} is no number and no range of numbers")
        first, last = found[1], found[2] or found[1]
        span = range(int(first), int(last) + 1)
        if not span:
            raise ValueError(f"{one} ends before it begins")
        yield span, len(first) if first.startswith("0") else 0


def _bracket(prefix: str, width: int, numbers: list[int]) -> str:
    # In a run of consecutive numbers, each number minus its position in the list gives the same
    # difference.
    runs = itertools.groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0])
    spans = [[number for _, number in run] for _, run in runs]
    texts = [
        f"{span[0]:0{width}d}" + (f"-{span[-1]:0{width}d}" if len(span) > 1 else "") for span in spans
    ]
    return f"{prefix}{texts[0]}" if len(numbers) == 1 else f"{prefix}[{','.join(texts)}]"
