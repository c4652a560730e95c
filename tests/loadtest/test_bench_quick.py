"""Tests of how `make bench-quick` evaluates its measurements."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import typer

from deploy.local.errors import MissingPrerequisitesError
from loadtest.harness.budgets import Verdict, budgets, judged, passed
from loadtest.harness.bursts import Burst
from loadtest.harness.command import Broken, command
from loadtest.harness.meters import MeterReading
from loadtest.harness.table import one
from loadtest.report.figures import Outcome
from loadtest.scenarios.bench import summary

QUICK = budgets("bench-quick")


def burst(
    pods_per_s: float, cpu_ms_per_pod: float = 0.0, writes: float = 5.0, calls: float = 2.0
) -> Burst:
    """Returns the figures of a burst of 100 Pods, which are bound after 1, 2, ... 100 ms."""
    bound_ms = [float(number) for number in range(1, 101)]
    cpu_s = {"extender": cpu_ms_per_pod / 10, "etcd": 0.2} if cpu_ms_per_pod else {"etcd": 0.2}
    asked, written = {"POST job/allocate": calls * 100}, {"PATCH pods": writes * 100}
    spent = MeterReading(cpu_s, rest_calls=asked, api_writes=written)
    return Burst(100 / pods_per_s, 0.5, bound_ms, spent)


def outcome(
    speeds: Sequence[float], idle_ms: float = 5.0, cpu_ms: float = 0.0, **counts: float
) -> Outcome:
    bursts, scenario = [burst(each, cpu_ms, **counts) for each in speeds], one("real", 200)
    assert scenario is not None
    return Outcome(scenario, bursts, idle_ms=[idle_ms] * 3)


def verdicts(
    *, ours: float = 60.0, idle: float = 30.0, mapped: float = 60.0, **counts: float
) -> list[Verdict]:
    outcomes = {
        "alone": outcome([150.0]),
        "noop": outcome([100.0]),
        "mapped": outcome([mapped]),
        "ours": outcome([ours], idle, **counts),
    }
    return judged(QUICK, summary(outcomes))


def test_a_burst_is_timed_from_the_first_create_call_to_the_last_binding() -> None:
    assert burst(50.0).pods_per_s == 50.0


def test_pods_of_a_mapped_user_have_a_budget() -> None:
    least = QUICK["ratio_mapped"]["at_least"] * 60
    assert passed(verdicts(mapped=least))
    assert not passed(verdicts(mapped=least - 0.1))


def test_ratio_to_the_noop_extender_has_a_budget() -> None:
    least = QUICK["ratio_to_noop"]["at_least"] * 100
    for ours, word in ((least, "kept"), (least - 0.1, "FALLS SHORT")):
        ratio, *_ = found = verdicts(ours=ours, mapped=ours)
        assert (ratio.word, passed(found)) == (word, word == "kept")


@pytest.mark.parametrize("counted", ["writes", "calls"])
def test_calls_or_writes_per_pod_above_the_budget_fail_the_run(counted: str) -> None:
    name = {"writes": "api_writes_per_pod_ours", "calls": "rest_calls_per_pod_ours"}[counted]
    most = QUICK[name]["at_most"]
    assert passed(verdicts(**{counted: most}))
    assert not passed(verdicts(**{counted: most + 0.01}))


@pytest.mark.parametrize("name", [name for name, budget in QUICK.items() if not budget.get("warns")])
def test_budgets_are_within_a_tenth_of_the_present_figures(name: str) -> None:
    budget = QUICK[name]
    if "at_least" in budget:
        assert 0.9 * budget["today"] <= budget["at_least"] < budget["today"]
    else:
        assert budget["today"] < budget["at_most"] <= 1.1 * budget["today"]


@pytest.mark.parametrize(("idle", "word"), [(50.0, "kept"), (50.1, "warning")])
def test_a_slow_binding_on_an_idle_cluster_only_warns(idle: float, word: str) -> None:
    *_, binding = found = verdicts(idle=idle)
    assert passed(found)
    assert binding.word == word


def test_a_ratio_compares_the_time_of_all_bursts() -> None:
    """In the noop runs, two bursts of 100 Pods take 3 s together (50 and 100 Pods a second). In our
    runs, they take 6 s (50 and 25 Pods a second). So the ratio is a half."""
    outcomes = {"alone": outcome([150.0]), "mapped": outcome([100.0, 50.0])}
    outcomes |= {"noop": outcome([50.0, 100.0]), "ours": outcome([50.0, 25.0])}
    found = summary(outcomes)
    assert (found["ratio_to_noop"], found["ratio_mapped"]) == (0.5, 2.0)


def test_summary_has_the_figures_of_readme() -> None:
    outcomes = {
        "alone": outcome([150.0]),
        "noop": outcome([100.0] * 3),
        "mapped": outcome([57.0] * 3, 31.0),
    }
    found = summary(outcomes | {"ours": outcome([60.0] * 3, 30.0, 7.5)})
    assert found["variants"].keys() == {"alone", "noop", "mapped", "ours"}
    assert found["variants"]["ours"]["burst"]["created_per_s"]["each"] == [200.0] * 3
    expected = {
        "pods_per_s_alone": 150.0,
        "pods_per_s_noop": 100.0,
        "pods_per_s_ours": 60.0,
        "ratio_to_noop": 0.6,
        "ratio_mapped": 0.95,
        "idle_bound_ms_p50_mapped": 31.0,
        "idle_bound_ms_p50": 30.0,
        "extender_cpu_ms_per_pod": 7.5,
    }
    assert found.items() >= expected.items()


# The context manager `command`


def ran(path: Path, *found: Verdict, error: BaseException | None = None, broken: bool = False) -> int:
    """Runs a command with these verdicts or this error, and returns the exit status."""

    def act() -> None:
        with command(path) as run:
            if error:
                raise error
            run.broken = broken
            run.conclude({"answer": 42}, found)

    with pytest.raises(typer.Exit) as ended:
        act()
    return ended.value.exit_code


def test_run_within_its_budgets_writes_its_figures(tmp_path: Path) -> None:
    path = tmp_path / "build/figures.json"
    assert ran(path, *verdicts()) == 0
    written = json.loads(path.read_text())
    assert written["answer"] == 42
    assert [each["word"] for each in written["verdicts"]] == ["kept"] * len(QUICK)


def test_run_that_misses_its_budgets_writes_its_figures(tmp_path: Path) -> None:
    assert ran(tmp_path / "figures.json", *verdicts(ours=1.0)) == 1
    assert (tmp_path / "figures.json").exists()


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (Broken("no Pod is bound"), 1),
        (ExceptionGroup("", [Broken("no Pod is bound")]), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_broken_run_keeps_its_logs_and_writes_no_figures(
    error: BaseException, status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "figures.json"
    path.write_text("yesterday's")
    assert ran(path, error=error) == status
    assert not path.exists()
    said = capsys.readouterr().out
    assert "the logs are in" in said
    assert ("broken: no Pod is bound" in said) == (status == 1)


def test_missing_prerequisite_is_reported_with_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ran(tmp_path / "figures.json", error=MissingPrerequisitesError(["Go is needed"])) == 2
    assert "missing: Go is needed" in capsys.readouterr().out


def test_run_with_a_broken_part_fails(tmp_path: Path) -> None:
    assert ran(tmp_path / "figures.json", *verdicts(), broken=True) == 1
