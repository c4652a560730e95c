"""The message of a condition or an Event about a cause.

Times are in UTC, because a reader may be anywhere.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from extender.explain.cause import Cause, Step
from extender.explain.sentences import sentence
from extender.explain.wording import fitted

_STEPS: Final[Mapping[Step, str]] = {
    Step.NOT_BEFORE: "not before",
    Step.NODE_ALLOWED: "{node} is excluded until",
    Step.ANOTHER_JOB: "the extender requests another job at",
    Step.SLURM_ASKED_AGAIN: "the extender asks Slurm again after a change of the annotations, or at",
}


def text(cause: Cause, times: str = "") -> str:
    """Returns the whole text, cut to the length of a condition or an Event: first the aside is cut,
    then the outlook, and the sentence last. `times` are the next steps (`next_steps`)."""
    said = sentence(cause)
    stop = "." if said.endswith(".") else ""
    aside = f"{stop or ';'} {sentence(cause.aside)}" if cause.aside else ""
    outlook = sentence(cause.outlook) if cause.outlook else ""
    return fitted((said.removesuffix("."), aside, times + stop, outlook), least=(1, 3, 0))


def next_steps(cause: Cause, now: datetime, at: float) -> str:
    """Returns the next steps with their times, each after a semicolon. `at` is the ledger's clock at
    the time `now`."""
    dues = ((due, now + timedelta(seconds=due.at - at)) for due in cause.dues)
    return "".join(
        f"; {_STEPS[due.step].format(node=due.node)} {when.astimezone(UTC):%H:%M:%S} UTC"
        for due, when in dues
    )
