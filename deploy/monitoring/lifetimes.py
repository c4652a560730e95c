"""Rest of the life of tokens and certificates, for alerts. A rest as short as one within the last day,
before a renewal, does not count: some live for an hour, and are renewed every 57 minutes."""

from dataclasses import dataclass
from typing import Final

from deploy.monitoring.releases import by
from deploy.monitoring.rule import Recording

_UNTOLD_S: Final = 86400
_BEFORE: Final = "[1d] offset 10m"
"""The day before the last minutes."""


@dataclass(frozen=True, slots=True)
class NearItsEnd:
    """Rest of a life, as a share and in seconds; at most a day if the time of issue is unknown."""

    share: float
    seconds: int

    def of(self, what: str) -> str:
        """Returns the expression of the seconds left of "token", for each replica with so few."""
        ends, issued = _ends(what), f"slurm_extender_{what}_issued_timestamp_seconds"
        seconds = f"{ends} - time()"
        in_share = f"{seconds} < {self.share} * ({ends} - {issued})"
        return f"({in_share} or ({seconds} < {_UNTOLD_S} unless {issued})) < {self.seconds}"


DAYS: Final = NearItsEnd(0.2, 14 * 86400)
"""A person has days for it; of a short life, a fifth."""
HOURS: Final = NearItsEnd(0.1, 4 * 3600)
"""Somebody has to act now; of a short life, a tenth."""


def left(what: str) -> Recording:
    """Returns the rule that records the seconds that are left, by release, while there are any."""
    return Recording(_left(what), f"min {by()} ({_ends(what)} - time() > 0)")


def unless_renewed_so_late(near: str, what: str) -> str:
    """Returns the expression without lives that were renewed as late within a day."""
    return f"({near}) unless min_over_time({_left(what)}{_BEFORE}) <= ({near})"


def _left(what: str) -> str:
    return f"slurm_extender:{what}_left:seconds"


def _ends(what: str) -> str:
    return f"slurm_extender_{what}_expiration_timestamp_seconds"
