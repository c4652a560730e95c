"""The metrics that an expression of PromQL names."""

import re
from collections.abc import Iterator
from typing import Final

_DROPPED: Final = (
    r'"(?:[^"\\]|\\.)*"',  # texts
    r"\{[^}]*\}",  # labels of a selector
    r"\[[^]]*\]",  # ranges
    r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)",  # names of labels
)
_NAME: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_CALLED: Final = re.compile(r"\s*\(")
_WORDS: Final = frozenset({"and", "or", "unless", "bool", "offset", "inf", "nan"})
_GROUPINGS: Final = frozenset({"by", "without", "on", "ignoring", "group_left", "group_right"})


def metrics_in(expr: str) -> Iterator[str]:
    """Yields the names of metrics in an expression, with _bucket, _count and _sum where they have it."""
    for dropped in _DROPPED:
        expr = re.sub(dropped, " ", expr)
    for found in _NAME.finditer(expr):
        name, number = found[0], expr[: found.start()][-1:].isdigit()
        called = _CALLED.match(expr, found.end())
        if not (called or number or name.lower() in _WORDS or name in _GROUPINGS):
            yield name
