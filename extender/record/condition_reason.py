"""Why something is as it is, in words for a person."""

from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from extender.request.wording import fitted
from wellknown.names import Reason


class Due(NamedTuple):
    """What is going to happen, in words for a person that a time follows, and when (the ledger's
    clock)."""

    words: str
    at: float


@dataclass(frozen=True, slots=True)
class ConditionReason:
    """Why something ended or cannot be, for a person: a CamelCase reason and a sentence."""

    reason: str
    message: str
    dues: tuple[Due, ...] = ()
    """What comes next, as far as that is known."""
    aside: str = ""
    """What else is so, without a stop."""
    outlook: str = field(default="", compare=False)
    """What follows it all, and is no news by itself when it changes: a time, for example."""
    normal: bool = field(default=False, compare=False)
    """Nothing is wrong: its Event is no warning."""

    @property
    def words(self) -> str:
        """Returns all that is told, but for the times of what comes next."""
        return self.told("")

    def told(self, times: str) -> str:
        """Returns all that is told, in as many characters as a condition or an Event takes: of what is
        longer the aside is cut first, then the outlook, and the sentence last. `times`: those of what
        comes next, each after a semicolon."""
        sentence, stop = self.message.removesuffix("."), "." if self.message.endswith(".") else ""
        aside = f"{stop or ';'} {self.aside}" if self.aside else ""
        return fitted((sentence, aside, times + stop, self.outlook), least=(1, 3, 0))


class WhyInvalid(NamedTuple):
    """Why a Pod is refused, and until when (the ledger's clock; infinity: until it is changed)."""

    words: str
    until: float = inf
    asks_again: bool = False
    """Slurm is asked for the same again, with growing pauses (`Retries`): the cause may have passed."""
    reason: str = Reason.INVALID
    """The reason while the Pod is refused."""
    codes: str = ""
    """The numbers of the error, which follow the words."""

    def cause(self, reason: str) -> ConditionReason:
        """Returns it as a cause, which tells when another job is asked for."""
        dues = (Due("another is asked for at", self.until),) if self.until < inf else ()
        return ConditionReason(reason, self.words, dues, outlook=in_brackets(self.codes))


def in_brackets(codes: str) -> str:
    """Returns the numbers of an error as the end of a message."""
    return f" ({codes})" if codes else ""
