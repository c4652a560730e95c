"""Tests of reading job states and the states of nodes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_client.in_memory import node
from slurm_client.job_state import UNKNOWN_STATE, JobState

STATES = {
    "running": ("RUNNING", "RUNNING,RESIZING", "RUNNING,SIGNALING"),
    "": ("RUNNING,CONFIGURING", "RUNNING,POWER_UP_NODE"),
    "completing": ("RUNNING,COMPLETING",),
    "pending completing": ("PENDING,COMPLETING,REQUEUED",),
    "suspended": ("SUSPENDED", "RUNNING,STOPPED"),
    "ended": (
        *("COMPLETED", "CANCELLED", "FAILED", "TIMEOUT"),
        *("NODE_FAIL", "PREEMPTED", "DEADLINE"),
    ),
}
PROPERTIES = ("running", "pending", "suspended", "ended", "completing")


@pytest.mark.parametrize(
    ("names", "holds"), [(names, holds) for holds, texts in STATES.items() for names in texts]
)
def test_state_has_the_properties_of_its_base_and_flags(names: str, holds: str) -> None:
    state = JobState.parse(names.split(","))
    assert " ".join(each for each in PROPERTIES if getattr(state, each)) == holds


def test_a_state_reads_as_squeue_shows_it() -> None:
    assert JobState.parse("CONFIGURING,RUNNING").text == "RUNNING+CONFIGURING"
    assert str(JobState.parse(["PENDING"])) == "PENDING"


@given(st.lists(st.text()))
def test_an_unknown_state_is_neither_running_nor_pending_nor_ended(names: list[str]) -> None:
    state = JobState.parse(names)
    if state.base == UNKNOWN_STATE:
        assert not any((state.running, state.pending, state.ended))


def test_an_unknown_flag_does_not_change_the_base_state() -> None:
    assert JobState.parse(["RUNNING", "NEW_IN_27"]) == JobState("RUNNING", frozenset({"NEW_IN_27"}))


@pytest.mark.parametrize("state", ["DRAIN", "DOWN", "NOT_RESPONDING", "MAINTENANCE", "FAIL"])
def test_a_node_that_takes_no_jobs_is_not_schedulable(state: str) -> None:
    healthy = node("n")
    assert healthy.schedulable
    closed = type(healthy)("n", healthy.states | {state}, 1, 1)
    assert not closed.schedulable


def test_external_nodes_are_recognised() -> None:
    assert node("n").external
    assert not node("n", external=False).external
