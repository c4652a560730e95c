"""Tests of the messages for the author of a Pod that waits in Slurm."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from extender.explain.cause import Cause
from extender.explain.message import text
from extender.explain.pending_reasons import PENDING_REASONS
from extender.explain.quantities import duration
from extender.node_view.node_hardware import NodeHardware
from extender.placement.transitions.waiting import granted, why_it_waits
from extender.pod_request.pod import Pod
from extender.record.config import Context, PlacementConfig
from slurm_client.job_state import JobState
from slurm_client.model import Job, Partition
from tests.builders import PREFIX, pod, view
from wellknown.allocation import Allocation

_13_11 = int(datetime(2026, 11, 24, 13, 11, 59, tzinfo=UTC).timestamp())
_15_40 = int(datetime(2026, 11, 24, 15, 40, tzinfo=UTC).timestamp())
DAY = 86_400
PENDING = JobState("PENDING")
JOB = Job(54271915, PENDING, partition="main", reason="Resources", submit_time=_13_11)
LARGE = pod(cpu="8", memory="8Gi", gpus=2)
VIEW = view(partitions=[Partition("main", (), max_time_minutes=24 * 60)])
AT = Context(0.0, PlacementConfig(), VIEW, {"main": NodeHardware(4, 4096, {"gpu": 8})})

WAITS = (
    "Slurm job 54271915 has waited in partition main since 24 Nov 13:11 UTC: all fitting nodes are in"
    " use (Resources); the job requests 8 CPUs, 8 GiB, 2 GPUs. Slurm expects the job to start about"
    " 15:40 UTC."
)
BY_ITS_AUTHOR = (
    'the author of the Pod holds the job by the annotation priority: "0", until an administrator of'
    " Slurm releases the job"
)
TOO_LONG = "the job's time limit of 2 days is longer than the 1 day that the partition allows"
TOO_LARGE = "no node of partition main has more than 4 CPUs, 4 GiB; the Pod requests 8 CPUs, 8 GiB"
GRANTED = (
    "Slurm job 54271915 runs on Node node-3; the Pod waited 4 min 10 s, 30 ms of it for slurm-extender"
)
EXAMPLES = (WAITS, BY_ITS_AUTHOR, TOO_LONG, TOO_LARGE)
"""The examples in docs/concepts/waiting.md."""


def told(of: Pod = LARGE, **job: Any) -> Cause:
    return why_it_waits(replace(JOB, **job), of.request, AT)


def test_message_states_reason_waiting_time_request_and_expected_start() -> None:
    cause = told(start_time=_15_40)
    assert text(cause) == WAITS
    assert (cause.reason, cause.kind.normal) == ("Resources", True)


def test_cause_ignores_the_expected_start_and_compares_everything_else() -> None:
    assert told(start_time=_15_40) == told(start_time=_15_40 + 600) == told()
    assert told() != told(reason="Priority")
    assert told() != told(submit_time=_13_11 + 60)
    assert told() != told(partition="spare")


def test_expected_start_on_another_day_names_the_day() -> None:
    assert text(told(start_time=_15_40 + DAY)).endswith("the job to start about 25 Nov 15:40 UTC.")


def test_expected_start_in_a_year_is_reported_as_not_plannable() -> None:
    words = text(told(start_time=_15_40 + 365 * DAY))
    assert words.endswith(
        "2 GPUs. Slurm cannot plan the start: earlier jobs have no time limit, or a limit of months."
    )


def test_message_omits_an_unknown_expected_start() -> None:
    assert text(told()).endswith("the job requests 8 CPUs, 8 GiB, 2 GPUs.")
    assert text(told(start_time=_15_40, held=True)) == text(told())


def test_missing_or_huge_times_raise_no_error() -> None:
    assert "main: all fitting" in text(told(submit_time=None, start_time=_15_40 + 365 * DAY))
    assert text(told(submit_time=2**62, start_time=2**62))


def test_state_description_is_shown_on_one_line_and_not_compared() -> None:
    words = "Job is at or exceeds QOS high's\n group wall limit of 60 with 61"
    cause = told(reason="QOSGrpWallLimit", state_description=words)
    assert text(cause).endswith(
        " Slurm says: Job is at or exceeds QOS high's group wall limit of 60 with 61."
    )
    assert cause == told(reason="QOSGrpWallLimit", state_description=words.replace("61", "62"))


def held_by(priority: str | None) -> Pod:
    asked = {} if priority is None else {PREFIX + "priority": priority}
    return pod(annotations=asked)


def test_message_states_that_the_author_holds_the_job() -> None:
    assert f": {BY_ITS_AUTHOR} (JobHeldUser);" in text(told(held_by("0"), reason="JobHeldUser"))


@pytest.mark.parametrize(
    ("priority", "reason"), [(None, "JobHeldUser"), ("7", "JobHeldUser"), ("0", "JobHeldAdmin")]
)
def test_message_does_not_name_the_author_for_another_hold(priority: str | None, reason: str) -> None:
    words = text(told(held_by(priority), reason=reason))
    assert "the author" not in words
    assert "releases the job" in words


def test_message_states_a_too_long_time_limit_and_the_allowed_limit() -> None:
    assert TOO_LONG in text(told(reason="PartitionTimeLimit", time_limit_minutes=2 * 24 * 60))


@pytest.mark.parametrize(
    "job", [{"time_limit_minutes": None}, {"time_limit_minutes": 9000, "partition": "main,unknown"}]
)
def test_message_omits_an_unknown_time_limit(job: dict[str, Any]) -> None:
    words = text(told(reason="PartitionTimeLimit", **job))
    assert "the job's time limit is longer than the partition allows (PartitionTimeLimit)" in words


@pytest.mark.parametrize("reason", ["PartitionConfig", "BadConstraints"])
def test_message_of_a_too_large_job_states_the_largest_node(reason: str) -> None:
    cause = told(reason=reason)
    assert cause.reason == "TooLarge"
    assert text(cause).startswith(f"{TOO_LARGE}. Slurm job ")
    assert text(cause).endswith(f" ({reason}).")


def test_job_below_the_fewest_nodes_is_invalid_and_not_too_large() -> None:
    pairs = Partition("pairs", ("n1", "n2"), min_nodes=2)
    at = replace(AT, view=view(partitions=[pairs]), hardware={"pairs": NodeHardware(99, 99_999)})
    job = replace(JOB, reason="PartitionNodeLimit", partition="pairs")
    cause = why_it_waits(job, pod().request, at)
    assert cause.reason == "Invalid"
    assert text(cause).startswith(
        "each job of partition pairs has at least 2 nodes; the Pod requests 1."
    )


def test_message_of_a_job_that_fits_a_node_states_the_reason_alone() -> None:
    plain = "the configuration of the partition does not let the job start (PartitionConfig)"
    assert plain in text(told(pod(cpu="1", memory="1Gi"), reason="PartitionConfig"))
    assert plain in text(told(reason="PartitionConfig", partition="main,unknown"))
    assert TOO_LARGE not in text(told(reason="Resources"))


def test_different_amounts_never_have_the_same_text() -> None:
    request = LARGE.request
    asks = LARGE._replace(request=replace(request, job=replace(request.job, memory_mb=16_001)))
    at = replace(AT, hardware={"main": NodeHardware(8, 16_000, {"gpu": 8})})
    words = text(why_it_waits(replace(JOB, reason="PartitionConfig"), asks.request, at))
    assert "has more than 16000 MiB; the Pod requests 16001 MiB. Slurm job" in words


def test_message_states_the_request_in_plain_units() -> None:
    whole = pod(cpu="1", memory="512Mi", gpus=1, annotations={PREFIX + "exclusive": "none"})
    assert "the job requests a whole node with 1 CPU, 512 MiB, 1 GPU." in text(told(whole))
    some = LARGE.request.job
    devices = (("gpu:h100", 2), ("shard", 3))
    odd = LARGE._replace(request=replace(LARGE.request, job=replace(some, memory_mb=8704, gres=devices)))
    assert "the job requests 8 CPUs, 8.5 GiB, 2 GPUs (h100), 3 of the GRES shard." in text(told(odd))


@pytest.mark.parametrize("reason", [row.name for row in PENDING_REASONS])
def test_no_message_is_longer_than_kubernetes_allows(reason: str) -> None:
    words = text(
        told(
            reason=reason,
            partition=",".join(f"partition{number}" for number in range(90)),
            state_description="x" * 5000,
            start_time=_15_40 + 365 * DAY,
        )
    )
    assert f"({reason})" in words
    assert "Slurm cannot plan" in words
    assert len(words) < 1024


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.0304, "30 ms"),
        (1.9, "1 s"),
        (59, "59 s"),
        (60, "1 min"),
        (250, "4 min 10 s"),
        (3601, "1 h"),
        (3660, "1 h 1 min"),
        (DAY, "1 day"),
        (2 * DAY + 5 * 3600 + 59, "2 days 5 h"),
    ],
)
def test_duration_has_at_most_two_units(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_grant_message_states_node_waiting_time_and_extender_share() -> None:
    allocation = Allocation(54271915, "node-3")
    assert text(granted(allocation, 250.4, 0.03)) == GRANTED
    assert text(granted(allocation, None, 0.03)) == "Slurm job 54271915 runs on Node node-3"


def test_waiting_time_is_at_least_the_extender_share_after_a_clock_change() -> None:
    words = text(granted(Allocation(7, "n1"), -3600.0, 0.5))
    assert words == "Slurm job 7 runs on Node n1; the Pod waited 500 ms, 500 ms of it for slurm-extender"
