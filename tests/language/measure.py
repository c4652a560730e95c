"""Limits of prose: about the figures of pages that strangers read without effort (Kueue, FastAPI)."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Self

_PRONOUN: Final = re.compile(r"its?|that|th[oe]se|ones?|which|what(ever)?|who(m|se|ever)?")
_OPENING: Final = re.compile(r"(Of|What|Who(se|ever)?|Where|Whether|That|Those|There)\s")
_PRIVATE: Final = re.compile(
    r"\b(anew|told|tells|hears|nobody|somebody|everybody|cure|authority|likewise|of late|by now"
    r"|from then on|but for|goes by)\b",
    re.IGNORECASE,
)
"""Words of the project alone, for which others have ordinary words: again, reports, no user, fix, CA."""
LEAST_WORDS: Final = 150
"""Shares of fewer words depend on a single sentence."""
_PRONOUNS_PER_100, _OPENINGS_PER_100, _PRIVATE_PER_1000, _WORDS = 4.0, 1.0, 0.5, 30


@dataclass(frozen=True, slots=True)
class Measure:
    """Measure of some sentences: pronouns in 100 words, sentences in 100 with a bad opening, private
    words in 1,000, and words in a sentence (90th percentile)."""

    words: int
    pronouns: float
    openings: float
    private: float
    length: int

    @classmethod
    def of(cls, sentences: Iterable[str]) -> Self:
        sentences = list(sentences)
        words = [word for each in sentences for word in _words(each)]
        lengths = sorted(len(each.split()) for each in sentences) or [0]
        return cls(
            len(words),
            100 * sum(map(_is_pronoun, words)) / max(1, len(words)),
            100 * sum(_opens_badly(each) for each in sentences) / max(1, len(sentences)),
            1000 * sum(len(_PRIVATE.findall(each)) for each in sentences) / max(1, len(words)),
            lengths[int(len(lengths) * 0.9) - 1],
        )

    @property
    def excess(self) -> list[str]:
        """Returns the limits that are exceeded, in words."""
        limits = (
            (self.pronouns, _PRONOUNS_PER_100, "pronouns in 100 words"),
            (
                self.openings,
                _OPENINGS_PER_100,
                "% of sentences that open with Of, What, Who, Where, That",
            ),
            (self.private, _PRIVATE_PER_1000, "private words in 1,000"),
            (self.length, _WORDS, "words in a sentence (90th percentile)"),
        )
        return [f"{has:.1f} {what} (at most {limit})" for has, limit, what in limits if has > limit]


def worst(sentences: Iterable[str], count: int = 3) -> list[str]:
    """Returns the sentences with the most pronouns, private words and bad openings."""
    return sorted(sentences, key=_faults, reverse=True)[:count]


def _faults(sentence: str) -> float:
    pronouns = sum(map(_is_pronoun, _words(sentence)))
    too_long = max(0, len(sentence.split()) - _WORDS) / 10
    return pronouns + 2 * len(_PRIVATE.findall(sentence)) + 2 * _opens_badly(sentence) + too_long


def _opens_badly(sentence: str) -> bool:
    return _OPENING.match(sentence) is not None


def _is_pronoun(word: str) -> bool:
    return _PRONOUN.fullmatch(word) is not None


def _words(sentence: str) -> list[str]:
    return re.findall(r"[a-z']+", sentence.lower())
