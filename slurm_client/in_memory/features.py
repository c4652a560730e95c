"""Evaluates feature expressions as in sbatch(1) --constraint: `h100&ib`, `a100|h100`, `(a|b)&c`, `a,b`.

Counts and brackets ("[rack1*2]") are not supported: no node fits such an expression.
"""

import re
from collections.abc import Collection
from functools import lru_cache

_NAME = re.compile(r"[A-Za-z0-9_.\-=:]+")
_INNERMOST = re.compile(r"\(([^()]*)\)")
_TRUE, _FALSE = "+", "?"
"""The texts that replace a part in parentheses. Neither text is the name of a feature."""


def names(expression: str) -> frozenset[str]:
    """Returns the names of features in an expression."""
    return frozenset(_NAME.findall(expression))


@lru_cache(maxsize=1024)  # thousands of nodes have the same features
def satisfied(expression: str, features: tuple[str, ...]) -> bool:
    """Returns True if a node with these features fits the expression. & binds before |, as in Slurm."""
    expression, has, parts = expression.replace(" ", ""), {*features, _TRUE}, 1
    while parts:
        expression, parts = _INNERMOST.subn(
            lambda part: _TRUE if _fits(part[1], has) else _FALSE, expression
        )
    return _fits(expression, has)


def _fits(plain: str, features: Collection[str]) -> bool:
    """Returns True if the features fit an expression without parentheses."""
    return any(all(name in features for name in re.split("[&,]", every)) for every in plain.split("|"))
