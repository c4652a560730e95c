"""Finds the metrics in a PromQL expression, and adds matchers to each metric."""

import re
from collections.abc import Callable, Iterator
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
    """Yields the names of the metrics in an expression, including suffixes such as _bucket."""
    return (found[0] for found in _metrics(expr))


def selected(expr: str, matchers: Callable[[str], str]) -> str:
    """Returns the expression with more matchers on each metric. `matchers` maps the metric's name
    to its matchers ('a="b"'), or to "" for no matchers."""
    at, parts = 0, []
    for found in _metrics(expr):
        more = matchers(found[0])
        has_some = expr.startswith("{", found.end())
        parts.append(expr[at : found.end()])
        at = found.end() + has_some
        if more:
            parts.append(f"{{{more}," if has_some else f"{{{more}}}")
        else:
            parts.append("{" * has_some)
    return "".join([*parts, expr[at:]])


def _metrics(expr: str) -> Iterator[re.Match[str]]:
    """Yields the positions of the metrics' names."""
    for dropped in _DROPPED:
        expr = re.sub(dropped, lambda found: " " * len(found[0]), expr)
    for found in _NAME.finditer(expr):
        name, number = found[0], expr[: found.start()][-1:].isdigit()
        called = _CALLED.match(expr, found.end())
        if not (called or number or name.lower() in _WORDS or name in _GROUPINGS):
            yield found
