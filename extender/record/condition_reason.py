"""Reasons of conditions and Events, in words for users."""

from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from extender.explain.wording import fitted
from wellknown.names import Reason


class Due(NamedTuple):
    """Next step in words for users, to be followed by a time, and the time (the ledger's clock)."""

    words: str
    at: float


@dataclass(frozen=True, slots=True)
class ConditionReason:
    """Reason of an end or of an obstacle, for users: a CamelCase reason and a sentence."""

    reason: str
    message: str
    dues: tuple[Due, ...] = ()
    """Next steps, as far as known."""
    aside: str = ""
    """Additional fact, without a full stop."""
    outlook: str = field(default="", compare=False)
    """Last part of the text, for example a time. A change of the outlook alone is no news."""
    normal: bool = field(default=False, compare=False)
    """True if nothing is wrong: the Event is no warning."""

    @property
    def words(self) -> str:
        """Returns the whole text without the times of the next steps."""
        return self.told("")

    def told(self, times: str) -> str:
        """Returns the whole text, cut to the length of a condition or an Event: first the aside is cut,
        then the outlook, and the sentence last. `times` are the times of the next steps, each after a
        semicolon."""
        sentence, stop = self.message.removesuffix("."), "." if self.message.endswith(".") else ""
        aside = f"{stop or ';'} {self.aside}" if self.aside else ""
        return fitted((sentence, aside, times + stop, self.outlook), least=(1, 3, 0))


class WhyInvalid(NamedTuple):
    """Why a Pod is rejected, and until when (the ledger's clock). Infinity: until the Pod changes."""

    words: str
    until: float = inf
    asks_again: bool = False
    """True if the extender repeats the request with growing pauses (`Retries`)."""
    reason: str = Reason.INVALID
    """Reason in the condition while the Pod is rejected."""
    codes: str = ""
    """Numbers of the error, which follow the words."""

    def cause(self, reason: str) -> ConditionReason:
        """Returns the cause for the record, with the time of the next request for a job."""
        dues = (Due("another is asked for at", self.until),) if self.until < inf else ()
        return ConditionReason(reason, self.words, dues, outlook=in_brackets(self.codes))


def in_brackets(codes: str) -> str:
    """Returns the numbers of an error as the end of a message."""
    return f" ({codes})" if codes else ""
