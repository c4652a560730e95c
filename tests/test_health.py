"""Tests of a program's health: which problems count as an outage, and which lines the log gets."""

from __future__ import annotations

from typing import Any

import pytest
from structlog.testing import capture_logs

from extender.execution.failures import failure_of
from kubernetes_client.errors import Conflict, KubernetesError, NotFound, Rejected, Unavailable
from service.health import Health, common_problem
from slurm_client.errors import (
    BadToken,
    InvalidRequest,
    NeedsOperator,
    OutcomeUnknown,
    RetryLater,
    SlurmError,
    Unexplained,
    Unreachable,
    Unreadable,
)

SILENT, REFUSED = OutcomeUnknown("GET jobs/state/: no reply within 15 s"), Unreachable("no connection")
DOWN = Unavailable(0, "kube-apiserver does not answer")
FORBIDDEN = Rejected(403, "persistentvolumeclaims is forbidden")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def health(clock: Clock) -> Health:
    return Health(clock)


def problems(health: Health) -> Any:
    return health.for_strangers()["problems"]


def test_outage_seen_by_many_parts_is_one_problem_with_two_log_lines(
    health: Health, clock: Clock
) -> None:
    with capture_logs() as logs:
        health.says("jobs", SILENT)
        for clock.now in range(1, 40):
            health.says("jobs", REFUSED if clock.now % 2 else SILENT)
            health.says("nodes", REFUSED)
            health.says("Slurm's partitions", f"cannot start yet: {SILENT}", because=SILENT)
            health.make_up()
            assert problems(health) == ["Slurm"]
        health.says("jobs", None)
        health.says("nodes", None)
        assert problems(health) == ["Slurm"]
        clock.now = 40.26
        health.says("Slurm's partitions", None)
        health.says("jobs", None)
    assert problems(health) == []
    assert health.parts() == {"Slurm": False}
    begun, over = (line for line in logs if line["log_level"] != "debug")
    assert (begun["log_level"], begun["event"], begun["part"]) == ("warning", "problem", "Slurm")
    assert begun["error"] == str(SILENT)
    assert (over["log_level"], over["event"], over["part"]) == ("info", "problem ended", "Slurm")
    assert over["lasted_s"] == 40.3


def test_outages_of_both_systems_are_two_problems(health: Health) -> None:
    health.says("Lease", DOWN)
    health.says("watch of Pods", DOWN)
    health.says("jobs", SILENT)
    assert problems(health) == ["Kubernetes", "Slurm"]


def test_error_other_than_an_outage_is_a_problem_of_the_part(health: Health) -> None:
    health.says("watch of persistentvolumeclaims", "Pods' claims are not checked", because=FORBIDDEN)
    health.says("Slurm's partitions", NeedsOperator("SLURM_EXTENDER_DEFAULT_PARTITION is x"))
    health.says("eviction limiter", "2 are held back", alarm=True)
    assert problems(health) == [
        "Slurm's partitions",
        "eviction limiter",
        "watch of persistentvolumeclaims",
    ]


def test_part_with_another_error_no_longer_counts_to_the_outage(health: Health, clock: Clock) -> None:
    health.says("jobs", SILENT)
    with capture_logs() as logs:
        health.says("jobs", BadToken("the token in /t expired 3 minutes ago"))
        assert problems(health) == ["Slurm"]
        clock.now = 5.0
        health.says("jobs", BadToken("the token in /t expired 3 minutes ago"))
        assert problems(health) == ["Slurm's token"]
        health.says("nodes", BadToken("the token in /t expired 3 minutes ago"))
        health.says("jobs", None)
        health.says("nodes", None)
    told = [(line["event"], line["part"]) for line in logs if line["log_level"] != "debug"]
    assert told == [
        ("problem ended", "Slurm"),
        ("problem", "Slurm's token"),
        ("problem ended", "Slurm's token"),
    ]


def test_forbidden_replies_of_a_starting_kube_apiserver_count_to_the_outage(
    health: Health, clock: Clock
) -> None:
    with capture_logs() as logs:
        for clock.now, met in ((0, DOWN), (20, FORBIDDEN), (22, FORBIDDEN), (23, DOWN), (26, FORBIDDEN)):
            for part in ("Lease", "watch of Pods"):
                health.says(part, met)
            assert problems(health) == ["Kubernetes"]
        health.says("Lease", None)
        clock.now = 30
        health.says("watch of Pods", None)
        health.says("watch of Pods", FORBIDDEN)
    assert problems(health) == ["watch of Pods"]
    told = [(line["event"], line["part"]) for line in logs if line["log_level"] != "debug"]
    kubernetes = [("problem", "Kubernetes"), ("problem ended", "Kubernetes")]
    assert told == [*kubernetes, ("problem", "watch of Pods")]


def test_next_outage_is_logged_again(health: Health) -> None:
    with capture_logs() as logs:
        for _ in range(2):
            health.says("jobs", SILENT)
            health.says("jobs", None)
    assert [line["event"] for line in logs] == ["problem", "problem ended"] * 2


def test_failure_is_not_logged_during_its_outage(health: Health) -> None:
    def tell() -> None:
        raise AssertionError

    assert health.news("Slurm", tell) is tell
    health.says("jobs", SILENT)
    assert health.news("Slurm", tell) is not tell
    assert health.news("Kubernetes", tell) is tell
    assert health.news(None, tell) is tell
    health.says("jobs", None)
    assert health.news("Slurm", tell) is tell


@pytest.mark.parametrize(
    "error",
    [
        SILENT,
        REFUSED,
        RetryLater("all connections were busy for 15 s"),
        RetryLater("busy", http_status=503),
        RetryLater("slurmctld asks for a pause", number=1804),
        RetryLater("a backup controller takes over", number=2027),
        OutcomeUnknown("lost before the reply", number=1802),
        OutcomeUnknown("Bad gateway", http_status=502),
        Unexplained("slurmctld is down, or a plugin refuses it", number=1),
    ],
)
def test_error_common_to_all_requests_is_an_outage_of_slurm(error: SlurmError) -> None:
    assert common_problem(error) == failure_of(error).problem == "Slurm"


@pytest.mark.parametrize(
    "error",
    [
        RetryLater("MaxJobCount jobs exist already", number=2007),
        InvalidRequest("no such partition", number=2000),
        NeedsOperator("only root or SlurmUser may do that", number=2002),
        Unreadable("a reply that cannot be read"),
        SlurmError("whatever"),
        Conflict(409, "it has changed"),
        NotFound(404, "it is gone"),
        FORBIDDEN,
        KubernetesError(0, "watch failed"),
        Unavailable(500, 'failed calling webhook "nodes.example.com"'),
    ],
)
def test_error_about_one_request_is_no_outage(error: SlurmError | KubernetesError) -> None:
    assert common_problem(error) is None
    assert failure_of(error).problem is None


@pytest.mark.parametrize("status", [0, 429, 502, 503])
def test_unavailable_kube_apiserver_is_an_outage_of_kubernetes(status: int) -> None:
    assert failure_of(Unavailable(status, "not now")).problem == "Kubernetes"
