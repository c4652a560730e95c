"""Cases for the alerts about the objectives (service level objectives)."""

from __future__ import annotations

from tests.monitoring.cases.case import Case, Series

_HANDLING = "slurm_extender_placement_handling_seconds"
_EVICTION = "slurm_extender_eviction_seconds"


def histogram(metric: str, soon: int, all_of_them: int, minutes: int = 240) -> Series:
    """Returns a histogram. Each minute has `all_of_them` observations, of which `soon` are below 5 s."""
    return {
        f'{metric}_bucket{{le="5.0"}}': f"0+{soon}x{minutes}",
        f"{metric}_count": f"0+{all_of_them}x{minutes}",
    }


CASES = (
    Case(
        "SlurmExtenderPlacementBudgetBurnsFast",
        histogram(_HANDLING, 5, 10),
        histogram(_HANDLING, 95, 100),
        "75m",
    ),
    Case(
        "SlurmExtenderPlacementBudgetBurnsFast",
        {f'{_HANDLING}_bucket{{le="5.0"}}': "0x240", f"{_HANDLING}_count": "0+1x240"},
        {f'{_HANDLING}_bucket{{le="5.0"}}': "0x240", f"{_HANDLING}_count": "0x60 1 2 3x180"},
        "75m",
    ),
    Case(
        "SlurmExtenderPlacementBudgetBurnsSlowly",
        histogram(_HANDLING, 95, 100),
        histogram(_HANDLING, 199, 200),
        "180m",
    ),
    Case(
        "SlurmExtenderEvictionBudgetBurnsFast",
        histogram(_EVICTION, 5, 10),
        histogram(_EVICTION, 95, 100),
        "75m",
    ),
    Case(
        "SlurmExtenderEvictionBudgetBurnsSlowly",
        histogram(_EVICTION, 95, 100),
        histogram(_EVICTION, 199, 200),
        "180m",
    ),
)
