"""Makes the message of a condition or an Event from a cause.

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
    """Returns the whole text of a cause. A text that is too long for a condition or an Event is cut:
    first the `aside` of the cause, then the `outlook`, and last the sentence. `times` is the text of the
    next steps (`next_steps`)."""
    words = sentence(cause)
    stop = "." if words.endswith(".") else ""
    aside = f"{stop or ';'} {sentence(cause.aside)}" if cause.aside else ""
    outlook = sentence(cause.outlook) if cause.outlook else ""
    return fitted((words.removesuffix("."), aside, times + stop, outlook), least=(1, 3, 0))


def next_steps(cause: Cause, now: datetime, at: float) -> str:
    """Returns the text of the next steps with their times, each after a semicolon. `now` is the present
    time, and `at` is the same time by the ledger's clock."""
    dues = ((due, now + timedelta(seconds=due.at - at)) for due in cause.dues)
    return "".join(
        f"; {_STEPS[due.step].format(node=due.node)} {when.astimezone(UTC):%H:%M:%S} UTC"
        for due, when in dues
    )
