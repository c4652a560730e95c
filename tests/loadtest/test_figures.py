"""What the benchmark makes of what it measured."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from loadtest.figures import ArmFigures, Burst, Figures
from loadtest.meters import Reading


def burst(pods_per_s: float, cpu_ms_per_pod: float = 0.0) -> Burst:
    """Of 100 Pods, bound after 1, 2, ... 100 ms."""
    bound_ms = [float(number) for number in range(1, 101)]
    cpu_s = {"extender": cpu_ms_per_pod / 10, "etcd": 0.2} if cpu_ms_per_pod else {"etcd": 0.2}
    return Burst(100 / pods_per_s, 0.5, bound_ms, Reading(cpu_s))


def arm(speeds: Sequence[float], idle_ms: Sequence[float] = (5.0,)) -> ArmFigures:
    return ArmFigures([burst(speed) for speed in speeds], list(idle_ms))


def figures(*, noop: float = 100.0, ours: float = 60.0, idle: float = 30.0) -> Figures:
    arms = {"alone": arm([150.0]), "noop": arm([noop]), "ours": arm([ours], [idle])}
    return Figures(200, 500, arms)


def test_a_burst_is_timed_from_the_first_create_call_to_the_last_binding() -> None:
    assert burst(50.0).pods_per_s == 50.0


def test_an_arms_figures_are_the_medians_of_its_bursts() -> None:
    found = ArmFigures([burst(10.0, 4.0), burst(70.0, 9.0), burst(60.0, 5.0)])
    assert found.pods_per_s == pytest.approx(60.0)
    assert found.extender_cpu_ms_per_pod == pytest.approx(5.0)
    assert found.cpu_ms_per_pod == pytest.approx(7.0)
    assert [found.burst_bound(percent) for percent in (50, 95, 99)] == [50, 95, 99]


@pytest.mark.parametrize(("ours", "passes"), [(50.0, True), (49.9, False)])
def test_half_of_the_noop_extenders_speed_must_be_reached(ours: float, *, passes: bool) -> None:
    found = figures(ours=ours)
    assert found.passes == passes
    assert found.verdicts()[0].word == ("kept" if passes else "FALLS SHORT")


@pytest.mark.parametrize(("idle", "word"), [(49.9, "kept"), (50.0, "warning")])
def test_a_slow_binding_on_an_idle_cluster_only_warns(idle: float, word: str) -> None:
    found = figures(idle=idle)
    assert found.passes
    assert found.verdicts()[1].word == word


def test_the_figures_are_written(tmp_path: Path) -> None:
    path = tmp_path / "build/bench-quick.json"
    found = figures()
    found.arms["ours"].bursts[:] = [burst(60.0, 7.5)]
    found.write(path)
    written = json.loads(path.read_text())
    assert written["arms"].keys() == {"alone", "noop", "ours"}
    assert written["arms"]["ours"]["created_per_s"] == [200.0]
    expected = {
        "pods_per_s_alone": 150.0,
        "pods_per_s_noop": 100.0,
        "pods_per_s_ours": 60.0,
        "ratio_to_noop": 0.6,
        "idle_bound_ms_p50": 30.0,
        "extender_cpu_ms_per_pod": 7.5,
    }
    assert written.items() >= expected.items()
