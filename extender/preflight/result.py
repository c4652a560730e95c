"""A check, what it found, and the words for people."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from extender.preflight.facts import Facts, NotKnown


class Verdict(StrEnum):
    """The outcome of a check."""

    PASS = "PASS"  # noqa: S105 -- no password
    WARN = "WARN"
    """It works, and not as it could: a person should know."""
    FAIL = "FAIL"
    """Pods would not be placed, or somebody would come to harm."""
    SKIPPED = "SKIPPED"
    """A fact could not be read; the fix says how a person sees it."""


class Finding(NamedTuple):
    """What a check found, in words."""

    verdict: Verdict
    words: str
    fix: str = ""
    """What to do about this; "": the check's own fix."""


def passed(words: str) -> Finding:
    return Finding(Verdict.PASS, words)


def warned(words: str, fix: str = "") -> Finding:
    return Finding(Verdict.WARN, words, fix)


def failed(words: str, fix: str = "") -> Finding:
    return Finding(Verdict.FAIL, words, fix)


@dataclass(frozen=True, slots=True)
class Check:
    """One comparison of the settings with what both systems say."""

    name: str
    """For people and programs, and the anchor of its row in docs/preflight.md."""
    about: str
    """What must be so: a sentence."""
    fix: str
    """What to do where it is not so."""
    look: str
    """How a person sees it where preflight cannot."""
    judge: Callable[[Facts], Finding]
    """Raises NotKnown where a fact could not be read."""


class Result(NamedTuple):
    """A check's outcome, as it is printed."""

    check: str
    verdict: Verdict
    words: str
    fix: str
    """What to do; "" where nothing is."""
    because: str = ""
    """The check that failed for the same cause, so that this check was skipped; "" if none did."""


def outcome(check: Check, facts: Facts) -> Result:
    """Returns what a check finds in the facts."""
    try:
        found = check.judge(facts)
    except NotKnown as unknown:
        return Result(check.name, Verdict.SKIPPED, str(unknown), check.look, unknown.because)
    fix = "" if found.verdict is Verdict.PASS else found.fix or check.fix
    return Result(check.name, found.verdict, found.words, fix)


def some(names: Sequence[str], most: int = 3) -> str:
    """Returns the first names and how many more there are: "a, b, c and 7 more"."""
    told = ", ".join(names[:most])
    return told if len(names) <= most else f"{told} and {len(names) - most} more"
