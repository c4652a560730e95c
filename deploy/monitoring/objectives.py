"""Service level objectives: which share of Pods is bound, and evicted, soon enough.

What a Pod waits for its turn, for Slurm's queue or for its author counts for no objective. Alerts go by
the burn rate of the error budget in two windows at a time (Google, The Site Reliability Workbook,
chapter 5): the long one shows that it matters, the short one that it goes on.
"""

from dataclasses import dataclass
from typing import Final

from deploy.monitoring.releases import by, on
from deploy.monitoring.rule import Alert, Group, Recording, Severity

WINDOWS: Final = ("5m", "30m", "1h", "2h", "6h", "1d", "3d")
_FAST: Final = ((14.4, "1h", "5m"), (6.0, "6h", "30m"))
"""Burn rate, long and short window: a 30 days' budget would be gone in two days, or in five."""
_SLOW: Final = ((3.0, "1d", "2h"), (1.0, "3d", "6h"))
_FEW: Final = {"1h": 20, "1d": 100}
"""Of fewer Pods in a window a handful says nothing."""


@dataclass(frozen=True, slots=True)
class Objective:
    """A share of all events that is to take no longer than a threshold."""

    name: str
    """In names of rules: "placement"."""
    alert: str
    metric: str
    """The histogram, in seconds."""
    seconds: float
    """The threshold: one of the histogram's buckets."""
    share: float
    what: str
    """In words: "Pods are bound"."""

    @property
    def budget(self) -> float:
        """Returns the share of events that may take longer."""
        return round(1 - self.share, 6)

    def ratio(self, window: str) -> str:
        """Returns the name under which the share of slow events in a window is recorded."""
        return f"slurm_extender:{self.name}_slow:ratio_rate{window}"

    def recordings(self) -> tuple[Recording, ...]:
        """Returns what is recorded: the share of slow events, for each window."""
        return tuple(Recording(self.ratio(window), self._slow(window)) for window in WINDOWS)

    def alerts(self) -> tuple[Alert, Alert]:
        """Returns the alert for a budget that burns fast, and the one for a budget that burns slowly."""
        return (
            Alert(
                f"{self.alert}BudgetBurnsFast",
                self._burns(_FAST, "1h"),
                "2m",
                Severity.CRITICAL,
                f"{self.what} too slowly: the month's error budget is gone within days",
                self._words(),
            ),
            Alert(
                f"{self.alert}BudgetBurnsSlowly",
                self._burns(_SLOW, "1d"),
                "15m",
                Severity.WARNING,
                f"{self.what} too slowly: the month's error budget will not last",
                self._words(),
            ),
        )

    def _words(self) -> str:
        return (
            f"{self.share:.0%} are to take less than {self.seconds:g} s"
            f" ({self.metric}); {{{{ $value | humanizePercentage }}}} took longer."
        )

    def _slow(self, window: str) -> str:
        soon = f'sum {by()} (rate({self.metric}_bucket{{le="{self.seconds}"}}[{window}]))'
        return f"1 - {soon} / sum {by()} (rate({self.metric}_count[{window}]))"

    def _burns(self, rates: tuple[tuple[float, str, str], ...], volume: str) -> str:
        pairs = (
            " and ".join(f"{self.ratio(each)} > {rate * self.budget:g}" for each in (long, short))
            for rate, long, short in rates
        )
        enough = f"sum {by()} (increase({self.metric}_count[{volume}])) > {_FEW[volume]}"
        return f"({' or '.join(f'({pair})' for pair in pairs)}) and {on()} {enough}"


OBJECTIVES: Final = (
    Objective(
        "placement",
        "SlurmExtenderPlacement",
        "slurm_extender_placement_handling_seconds",
        5.0,
        0.99,
        "Pods are bound",
    ),
    Objective(
        "eviction",
        "SlurmExtenderEviction",
        "slurm_extender_eviction_seconds",
        5.0,
        0.99,
        "Pods whose jobs have ended are evicted",
    ),
)

GROUPS: Final = (
    Group(
        "slurm-extender-slo-records", tuple(rule for each in OBJECTIVES for rule in each.recordings())
    ),
    Group("slurm-extender-slo", tuple(rule for each in OBJECTIVES for rule in each.alerts())),
)
