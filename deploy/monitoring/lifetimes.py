"""Expressions for alerts: the time until tokens and certificates expire.

An alert does not fire if a token of the release came as near to its expiry within the last day and was
then renewed. Such a late renewal may be normal: some tokens last an hour, and are always renewed after
57 minutes.
"""

from dataclasses import dataclass
from typing import Final

from deploy.monitoring.releases import by
from deploy.monitoring.rule import Recording

_ISSUE_UNKNOWN_S: Final = 86400
_BEFORE: Final = "[1d] offset 10m"
"""PromQL range: the 24 hours that ended ten minutes ago."""


@dataclass(frozen=True, slots=True)
class NearItsEnd:
    """Limit for the time until the expiry. The limit is `share` of the lifetime, but at most `seconds`.
    If the time of issue is unknown, the limit is a day, but at most `seconds`."""

    share: float
    seconds: int

    def of(self, what: str) -> str:
        """Returns the expression for the seconds until the expiry of `what` ("token"). The
        expression has a series for each replica below the limit."""
        ends, issued = _ends(what), f"slurm_extender_{what}_issued_timestamp_seconds"
        seconds = f"{ends} - time()"
        in_share = f"{seconds} < {self.share} * ({ends} - {issued})"
        return f"({in_share} or ({seconds} < {_ISSUE_UNKNOWN_S} unless {issued})) < {self.seconds}"


DAYS: Final = NearItsEnd(0.2, 14 * 86400)
"""Limit that leaves a person up to 14 days to act: a fifth of the lifetime, but at most 14 days."""
HOURS: Final = NearItsEnd(0.1, 4 * 3600)
"""Limit at which a person must act at once: a tenth of the lifetime, but at most 4 hours."""


def left(what: str) -> Recording:
    """Returns the rule that records the seconds until the expiry, by release. After the expiry, nothing
    is recorded."""
    return Recording(_left(what), f"min {by()} ({_ends(what)} - time() > 0)")


def unless_renewed_so_late(near: str, what: str) -> str:
    """Returns the expression `near` without some releases: the releases whose token or certificate came
    as near to its expiry within the last day, and was then renewed."""
    return f"({near}) unless min_over_time({_left(what)}{_BEFORE}) <= ({near})"


def _left(what: str) -> str:
    return f"slurm_extender:{what}_left:seconds"


def _ends(what: str) -> str:
    return f"slurm_extender_{what}_expiration_timestamp_seconds"
