"""Reading of job states, and what nodes say of themselves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_client.in_memory import node
from slurm_client.model import UNKNOWN_STATE, JobState


@pytest.mark.parametrize("flag", ["CONFIGURING", "COMPLETING", "STOPPED", "POWER_UP_NODE"])
def test_running_with_a_flag_that_takes_it_back_is_not_running(flag: str) -> None:
    assert not JobState.parse(["RUNNING", flag]).running


@pytest.mark.parametrize("names", [["RUNNING"], ["RUNNING", "RESIZING"], ["RUNNING", "SIGNALING"]])
def test_running_is_running(names: list[str]) -> None:
    assert JobState.parse(names).running


@pytest.mark.parametrize(
    "base", ["COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "DEADLINE"]
)
def test_a_terminal_base_state_has_ended(base: str) -> None:
    state = JobState.parse([base])
    assert state.ended
    assert not any((state.running, state.pending, state.suspended))


def test_a_requeued_job_that_completes_is_pending_again() -> None:
    state = JobState.parse(["PENDING", "COMPLETING", "REQUEUED"])
    assert state.pending
    assert state.completing
    assert not state.ended


@pytest.mark.parametrize("names", [["SUSPENDED"], ["RUNNING", "STOPPED"]])
def test_suspended_and_stopped_jobs_are_suspended(names: list[str]) -> None:
    assert JobState.parse(names).suspended


def test_a_state_reads_as_squeue_shows_it() -> None:
    assert JobState.parse("CONFIGURING,RUNNING").text == "RUNNING+CONFIGURING"
    assert str(JobState.parse(["PENDING"])) == "PENDING"


@given(st.lists(st.text()))
def test_an_unknown_name_never_crashes_and_nothing_is_concluded_from_it(names: list[str]) -> None:
    state = JobState.parse(names)
    if state.base == UNKNOWN_STATE:
        assert not any((state.running, state.pending, state.ended))


def test_an_unknown_flag_leaves_the_base() -> None:
    assert JobState.parse(["RUNNING", "NEW_IN_27"]) == JobState("RUNNING", frozenset({"NEW_IN_27"}))


@pytest.mark.parametrize("state", ["DRAIN", "DOWN", "NOT_RESPONDING", "MAINTENANCE", "FAIL"])
def test_a_node_that_takes_no_jobs_is_not_schedulable(state: str) -> None:
    healthy = node("n")
    assert healthy.schedulable
    closed = type(healthy)("n", healthy.states | {state}, 1, 1)
    assert not closed.schedulable


def test_external_nodes_say_so() -> None:
    assert node("n").external
    assert not node("n", external=False).external
