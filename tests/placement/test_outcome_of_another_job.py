"""The outcome of a read says nothing about the record's job if the record has got another job since."""

from dataclasses import replace
from typing import Any

import pytest

from extender.jobs.phase import Phase
from extender.jobs.tracked_job import TrackedJob
from extender.placement.transitions.on_outcome import after_outcome
from extender.record.events import Failure, Outcome, ReadJob, Remedy
from extender.record.member import Member
from extender.record.retry import Retry
from extender.record.states import State
from slurm_client.job_state import JobState
from tests.builders import changed, kube_node, moment, placeholder_job, placeholder_of, pod
from wellknown.allocation import Allocation

OLD, NEW = 1, 2
AT = moment(kube_node("n1"))
SLOT = Allocation(NEW, "n1", cores="0")
BOUND = changed(pod("p", uid="u"), allocation=SLOT, job_id=NEW, node="n1")
RECORD = placeholder_of(
    BOUND,
    State.BOUND,
    members=(Member(BOUND, SLOT),),
    job=TrackedJob(NEW, Phase.SUSPECT),
    retry=Retry(in_flight=True),
)
ENDED = replace(placeholder_job(BOUND, node="n1"), id=OLD, state=JobState("NODE_FAIL"))


@pytest.mark.parametrize("result", [ENDED, None, Failure(Remedy.OTHER_JOB, "other job")])
def test_read_of_the_last_job_ends_nothing(result: Any) -> None:
    after = after_outcome(RECORD, Outcome(ReadJob("u", OLD), result), AT)
    assert after == RECORD._replace(retry=Retry())


def test_read_of_the_present_job_counts() -> None:
    ended = replace(ENDED, id=NEW)
    assert after_outcome(RECORD, Outcome(ReadJob("u", NEW), ended), AT).job != RECORD.job
