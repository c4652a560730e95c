"""Feature expressions, as in sbatch(1) --constraint: `h100&ib`, `a100|h100`, `(a|b)&c`, `a,b`.

Counts and brackets ("[rack1*2]") are not understood and make the expression unknown.
"""

import re
from functools import lru_cache

_NAME = re.compile(r"[A-Za-z0-9_.\-=:]+")


def names(expression: str) -> frozenset[str]:
    """The features that it speaks of."""
    return frozenset(_NAME.findall(expression))


@lru_cache(maxsize=1024)
def satisfied(expression: str, features: tuple[str, ...]) -> bool:
    """Whether a node with these features will do; & binds before |, as in Slurm. Thousands of nodes have
    the same."""
    tokens = re.findall(r"[A-Za-z0-9_.\-=:]+|[&|(),]", expression)
    return _Parser(tokens, features).alternatives()


class _Parser:
    """Recursive descent over the tokens: alternatives of conjunctions of names and parentheses."""

    def __init__(self, tokens: list[str], features: tuple[str, ...]) -> None:
        self._tokens = tokens
        self._features = features

    def alternatives(self) -> bool:
        result = self._conjunction()
        while self._take("|"):
            result = self._conjunction() or result
        return result

    def _conjunction(self) -> bool:
        result = self._single()
        while self._take("&") or self._take(","):
            result = self._single() and result
        return result

    def _single(self) -> bool:
        if self._take("("):
            result = self.alternatives()
            self._take(")")
            return result
        return bool(self._tokens) and self._tokens.pop(0) in self._features

    def _take(self, token: str) -> bool:
        if self._tokens and self._tokens[0] == token:
            self._tokens.pop(0)
            return True
        return False
