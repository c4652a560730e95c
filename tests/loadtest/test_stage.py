"""Tests of a stage of `make bench` on real components. A stage is a group of scenarios whose clusters
run at the same time. A scenario that breaks must not disturb the others."""

from dataclasses import replace
from pathlib import Path

import pytest

from deploy.local.progress import silent
from loadtest.harness.table import Flow, Scenario, Way
from loadtest.harness.variants import Placer
from loadtest.report.figures import Outcome
from loadtest.scenarios.stage import Sizes, run_stage

NODES = 10
PODS = 20

COUNTED = ("rest_calls_per_pod", "rest_bytes_per_pod", "filter_ms_p99", "extender_cpu_ms_per_pod")


def scenario(
    name: str,
    placer: Placer,
    flow: Flow = Flow.GATE_FIRST,
    path: Way = Way.FAST,
    *,
    native: int | None = None,
    times: int = 1,
) -> Scenario:
    few = Scenario("few Nodes", name, placer, NODES, flow, path, native=native)
    return replace(few, bursts=times, steadies=times, idle=2)


def check_measured(outcome: Outcome, *, slurm_log: bool) -> None:
    """Checks the figures of a scenario. `slurm_log` is False if slurmctld's log shows no starts: this is
    so if the backfill scheduler has started all jobs. Starts in one of four loads are enough."""
    found = outcome.as_json()
    assert found["broken"] is None
    assert found["idle_bound_ms"]["pods"] == 2
    assert found["peak_rss_mb"] > 20
    for load in ("burst", "steady"):
        assert all(found[load][name]["median"] > 0 for name in COUNTED), found[load]
        assert found[load]["api_writes_per_pod"]["median"] >= 3  # created, ungated, bound
        started = found[load].get("start_bound_ms_p50")
        assert (started is not None) == slurm_log
        assert started is None or 0 < started["median"] < found[load]["bound_ms_p99"]["median"]


def test_round_begins_for_all_scenarios_or_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    sizes = Sizes(PODS, 50.0, rounds_end_s=100.0, begun=0.0)
    assert sizes.may_begin(0)
    now = 45.0
    assert [sizes.may_begin(0), sizes.may_begin(1)] == [True, True]
    now = 91.0  # the last round took 46 s
    assert [sizes.may_begin(1), sizes.may_begin(2), sizes.may_begin(2)] == [True, False, False]


@pytest.mark.real
@pytest.mark.timeout(400)
def test_broken_scenario_does_not_affect_other_scenarios(tmp_path: Path) -> None:
    nameless = scenario("no node is called so there", Placer.REAL)
    scenarios = [
        replace(nameless, nodes=1, release="24.11", before=1),  # each Node has a slurmd
        scenario("stub", Placer.STUB),
        scenario(
            "queued, filter first", Placer.REAL, Flow.FILTER_FIRST, Way.SUBMIT, native=100, times=4
        ),
        scenario("Slurm alone", Placer.REST, path=Way.SUBMIT),
    ]
    broken, stub, filtered, slurm = run_stage(scenarios, Sizes(PODS, 50.0), tmp_path, silent)
    assert "external-1" in broken.broken or "node" in broken.broken
    assert not broken.bursts
    check_measured(stub, slurm_log=False)
    check_measured(filtered, slurm_log=True)
    calls = filtered.as_json()["rest_calls_per_pod_by_call"]
    assert calls["POST job/submit"] == 1.0
    assert "POST job/allocate" not in calls
    assert (slurm.broken, len(slurm.bursts)) == ("", 1)
    assert slurm.as_json()["rest_calls_per_pod_by_call"]["POST job/submit"] == 1.0
