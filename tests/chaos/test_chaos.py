"""Tests a minute of chaos with a fixed seed. `make chaos` runs longer, and limits the time of
evictions."""

from pathlib import Path

import pytest

from tests.chaos.report import FAILOVER_LIMIT_S
from tests.chaos.run import run


@pytest.mark.real
@pytest.mark.alone
@pytest.mark.timeout(400)
def test_a_minute_of_chaos_duplicates_loses_and_leaks_nothing(tmp_path: Path) -> None:
    report = run(seed=27, duration=50.0, directory=tmp_path / "chaos", log=print)
    assert report.violations == []
    assert report.kills > 5
    assert report.pods > 60
    assert report.pods_bound > 40
    assert report.native_starts > 10
    assert report.overlap_seconds_max == 0
    assert report.state_losses == 1
    assert sum(report.evictions.values()) >= 50
    assert report.failover_s_max is not None
    assert report.failover_s_max <= FAILOVER_LIMIT_S
