"""The reason why a Pod cannot be placed now, and the time at which the extender tries again."""

from dataclasses import replace
from math import inf
from typing import NamedTuple

from extender.explain.cause import Cause, Due, Step


class WhyInvalid(NamedTuple):
    """Why a Pod is rejected, and until when, on the ledger's clock. If the time is infinity, the Pod is
    rejected until the Pod changes."""

    cause: Cause
    until: float = inf
    asks_again: bool = False
    """True if the extender repeats the request with growing pauses (`Retries`)."""

    def shown(self, reason: str = "") -> Cause:
        """Returns the cause for the record, with the time of the next request for a job. If `reason` is
        given, `reason` replaces the cause's reason."""
        dues = (Due(Step.ANOTHER_JOB, self.until),) if self.until < inf else ()
        return replace(self.cause, reason=reason or self.cause.reason, dues=dues)
