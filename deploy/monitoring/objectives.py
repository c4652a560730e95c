"""Service level objectives: the shares of Pods bound in time and of Pods evicted in time.

The measured times exclude three waiting times of a Pod: for the Pod's turn, in Slurm's queue, and for a
correction by the Pod's author. Alerts use the burn rate of the error budget in two windows (Google, The
Site Reliability Workbook, chapter 5). The long window shows that the problem matters. The short window
shows that the problem continues.
"""

from dataclasses import dataclass
from typing import Final

from deploy.monitoring.releases import by, on
from deploy.monitoring.rule import Alert, Group, Recording, Severity

WINDOWS: Final = ("5m", "30m", "1h", "2h", "6h", "1d", "3d")
_FAST: Final = ((14.4, "1h", "5m"), (6.0, "6h", "30m"))
"""Each entry has a burn rate, a long window and a short window. These burn rates use up the budget of 30
days in two or five days."""
_SLOW: Final = ((3.0, "1d", "2h"), (1.0, "3d", "6h"))
_FEW: Final = {"1h": 20, "1d": 100}
"""Minimum number of Pods in a window. With fewer Pods, a few slow Pods prove nothing."""


@dataclass(frozen=True, slots=True)
class Objective:
    """The minimum share of events that take no longer than a threshold."""

    name: str
    """Part of the names of rules: "placement"."""
    alert: str
    metric: str
    """The histogram, in seconds."""
    seconds: float
    """The threshold: one of the histogram's buckets."""
    share: float
    what: str
    """The event as a clause: "Pods are bound"."""

    @property
    def budget(self) -> float:
        """Returns the share of events that may take longer."""
        return round(1 - self.share, 6)

    def ratio(self, window: str) -> str:
        """Returns the name of the recorded share of slow events in a window."""
        return f"slurm_extender:{self.name}_slow:ratio_rate{window}"

    def recordings(self) -> tuple[Recording, ...]:
        """Returns the rules that record the share of slow events, for each window."""
        return tuple(Recording(self.ratio(window), self._slow(window)) for window in WINDOWS)

    def alerts(self) -> tuple[Alert, Alert]:
        """Returns two alerts: the first if the budget burns fast, the second if the budget burns
        slowly."""
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
            f"The objective is {self.share:.0%} of all Pods within {self.seconds:g} s ({self.metric})."
            f" But {{{{ $value | humanizePercentage }}}} of the Pods took longer."
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
