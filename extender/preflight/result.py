"""The types of preflight: checks, findings and results."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from extender.preflight.facts import Facts, NotKnown


class Verdict(StrEnum):
    """The outcome of a check."""

    PASS = "PASS"  # noqa: S105 -- no password
    WARN = "WARN"
    """Pods are placed, with a restriction that an administrator should know."""
    FAIL = "FAIL"
    """Pods are not placed, or a user is harmed."""
    SKIPPED = "SKIPPED"
    """A fact could not be read. The fix says how a person can check."""


class Finding(NamedTuple):
    """The finding of a check, as a message."""

    verdict: Verdict
    words: str
    fix: str = ""
    """The fix for this finding. If "", the fix of the check applies."""


def passed(words: str) -> Finding:
    return Finding(Verdict.PASS, words)


def warned(words: str, fix: str = "") -> Finding:
    return Finding(Verdict.WARN, words, fix)


def failed(words: str, fix: str = "") -> Finding:
    return Finding(Verdict.FAIL, words, fix)


@dataclass(frozen=True, slots=True)
class Check:
    """A comparison of the settings with Slurm or Kubernetes."""

    name: str
    """Name in all outputs, and the anchor of the check's row in docs/reference/preflight.md."""
    about: str
    """The requirement, as a sentence."""
    fix: str
    """The fix for a failure."""
    look: str
    """How a person can check what preflight cannot read."""
    judge: Callable[[Facts], Finding]
    """Returns the finding. Raises NotKnown if a fact could not be read."""


class Result(NamedTuple):
    """A check's outcome, as printed."""

    check: str
    verdict: Verdict
    words: str
    fix: str
    """The fix; "" if nothing needs a fix."""
    because: str = ""
    """Name of the failed check that is the cause of a skipped check; "" if there is no such check."""


def outcome(check: Check, facts: Facts) -> Result:
    """Returns the outcome of a check with the facts."""
    try:
        found = check.judge(facts)
    except NotKnown as unknown:
        return Result(check.name, Verdict.SKIPPED, str(unknown), check.look, unknown.because)
    fix = "" if found.verdict is Verdict.PASS else found.fix or check.fix
    return Result(check.name, found.verdict, found.words, fix)


def some(names: Sequence[str], most: int = 3) -> str:
    """Returns the first names and the number of further names, like "a, b, c and 7 more"."""
    listed = ", ".join(names[:most])
    return listed if len(names) <= most else f"{listed} and {len(names) - most} more"
