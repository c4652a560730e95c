"""Whose a job is: what Slurm was asked, and what it made of that; and a policy that changes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from extender.explain.sentences import sentence
from extender.placement.recovery import recovered
from extender.pod_request.job_request import Request
from extender.record.events import CancelJob, ClusterObserved, ReportWaiting, Submit, WriteAllocation
from extender.record.states import State
from slurm_client.model import Job
from tests.builders import kube_node, moment, placeholder_job, pod
from tests.placement.ledger_world import NODES, REQUEST, VIEW, World

ALICE, BOB = 2001, 2002
FORBIDDEN = "annotation user-id: '2002' is not allowed"


def asks(world: World, uid: str, user: int | None, *problems: str) -> None:
    """The Pod's author, or a new policy, has it that the Pod's job is this user's."""
    now = world.pods[uid]
    job = replace(now.request.job, user_id=user)
    world.write(now._replace(request=replace(now.request, job=job, problems=problems)))


def of_alice(world: World) -> str:
    return world.create_pod(request=replace(REQUEST, job=replace(REQUEST.job, user_id=ALICE)))


def waits(world: World, uid: str) -> Job:
    world.settle()
    assert world.state_of(uid) is State.QUEUED
    return world.job_of(uid)


def refusal(world: World, uid: str) -> str:
    """What the author of a refused Pod is told."""
    told = [e for e in world.settle() + world.poll() if isinstance(e, ReportWaiting) and e.uid == uid]
    assert world.state_of(uid) is State.INVALID
    return sentence(told[-1].cause)


def look(world: World) -> None:
    """The job that waits is read."""
    world.pass_time(2.0)
    world.settle()


def test_a_job_is_asked_for_as_its_user_and_never_at_once(world: World) -> None:
    uid = of_alice(world)
    submitted = [e for e in world.settle() if isinstance(e, Submit)]
    assert [(e.immediate, e.job.user_id) for e in submitted] == [(False, ALICE)]
    assert world.job_of(uid).user_id == ALICE
    look(world)
    assert world.state_of(uid) is State.QUEUED


def test_a_job_that_slurm_gives_to_another_is_cancelled_and_its_pod_refused() -> None:
    world = World(gives_to=(98, 98))
    uid = of_alice(world)
    job = waits(world, uid)
    look(world)
    assert world.live_jobs(uid) == []
    told = refusal(world, uid)
    assert f"Slurm gave job {job.id} to user 98 and group 98 instead of user 2001" in told


def test_a_job_of_nobody_is_told_to_be_of_an_unknown_user() -> None:
    world = World(gives_to=(99, 99))
    uid = of_alice(world)
    waits(world, uid)
    look(world)
    assert refusal(world, uid) == "slurmctld does not know user 2001 (is sssd running on its host?)"


def test_the_group_counts_too() -> None:
    world = World(gives_to=(ALICE, 0))
    uid = of_alice(world)
    waits(world, uid)
    look(world)
    assert "to user 2001 and group 0 instead of user 2001 and group 2001" in refusal(world, uid)


def test_a_job_of_another_that_runs_already_is_never_granted_to_the_pod() -> None:
    world = World(gives_to=(0, 0))
    uid = of_alice(world)
    waits(world, uid)
    world.schedule()
    done = world.poll()
    assert not any(isinstance(e, WriteAllocation) for e in done)
    assert any(isinstance(e, CancelJob) for e in done)
    assert "user 0" in refusal(world, uid)


def test_a_pod_refused_for_its_jobs_owner_is_not_tried_again_until_it_changes() -> None:
    world = World(gives_to=(0, 0))
    uid = of_alice(world)
    waits(world, uid)
    look(world)
    refusal(world, uid)
    world.tell(ClusterObserved(VIEW))
    assert world.settle() == []
    world.gives_to = None
    asks(world, uid, BOB)
    assert waits(world, uid).user_id == BOB


def test_a_job_in_nobodys_name_may_be_anybodys() -> None:
    """The token's user is Slurm's to know."""
    world = World(gives_to=(64030, 64030), rules=replace(World().rules, fast_path=False))
    uid = world.create_pod()
    waits(world, uid)
    look(world)
    assert world.state_of(uid) is State.QUEUED


# A policy, or a Pod, that changes


def test_a_job_that_waits_and_is_not_allowed_any_more_is_given_back(world: World) -> None:
    uid = of_alice(world)
    waits(world, uid)
    asks(world, uid, None, FORBIDDEN)
    world.settle()
    assert world.live_jobs(uid) == []
    assert refusal(world, uid) == FORBIDDEN
    asks(world, uid, ALICE)
    assert waits(world, uid).user_id == ALICE


def test_a_job_that_waits_and_is_to_be_nobodys_any_more_is_asked_for_anew(world: World) -> None:
    """At once, where there is room: as nobody's it is not said to be another's."""
    uid = of_alice(world)
    waits(world, uid)
    world.tells_grants = False  # what was granted is read
    asks(world, uid, None)
    world.poll()
    world.poll()
    assert world.state_of(uid) is State.ALLOCATED
    assert world.job_of(uid).user_id == 0


def test_a_job_that_waits_and_is_to_be_anothers_is_asked_for_anew(world: World) -> None:
    uid = of_alice(world)
    waits(world, uid)
    asks(world, uid, BOB)
    world.settle()
    world.poll()
    assert waits(world, uid).user_id == BOB


def test_what_slurm_has_granted_is_not_affected(world: World) -> None:
    """Not even while it is not known yet what."""
    uid = of_alice(world)
    waits(world, uid)
    world.schedule()
    world.poll_alone()
    asks(world, uid, None, FORBIDDEN)
    world.settle()
    world.bind(uid)
    world.settle()
    assert world.state_of(uid) is State.BOUND
    assert world.job_of(uid).user_id == ALICE


@pytest.mark.parametrize("forbidden", [(), (FORBIDDEN,)])
def test_a_bound_pod_runs_by_what_was_asked_for_whatever_is_asked_later(
    forbidden: tuple[str, ...],
) -> None:
    world = World()
    uid = of_alice(world)
    waits(world, uid)
    world.schedule()
    world.poll()
    world.bind(uid)
    world.settle()
    asks(world, uid, BOB, *forbidden)
    assert world.settle() == []
    world.jobs.clear()  # and even where Slurm has lost everything
    for _ in range(world.rules.confirmations):
        world.poll()
    world.settle()
    assert world.state_of(uid) is State.BOUND
    assert world.job_of(uid).user_id == ALICE


# After a restart

AT = moment(*(kube_node(name) for name in NODES))


def found(state: str, user: int, problems: tuple[str, ...] = (), asked: int | None = ALICE) -> State:
    """Where a Pod stands of which this job is found."""
    waiting = pod(uid="u1")
    job = replace(waiting.request.job, user_id=asked)
    waiting = waiting._replace(request=Request(job, waiting.request.constraints, problems))
    node = "n1" if state == "RUNNING" else None
    mine = placeholder_job(waiting, state, node=node, user_id=user, group_id=user)
    record, stray = recovered((waiting,), (mine,), AT)
    assert record is not None
    assert stray == ()
    return record.state


def test_a_job_that_is_as_the_pod_asks_is_taken_up() -> None:
    assert found("PENDING", ALICE) is State.QUEUED
    assert found("RUNNING", ALICE) is State.ALLOCATED


def test_a_job_of_another_is_given_back() -> None:
    assert found("PENDING", 0) is State.REPLACING
    assert found("RUNNING", 0) is State.REPLACING


def test_a_job_that_waits_and_is_forbidden_by_now_is_given_back() -> None:
    assert found("PENDING", 0, (FORBIDDEN,), None) is State.REPLACING


def test_a_job_that_runs_is_not_affected_by_what_is_forbidden_by_now() -> None:
    assert found("RUNNING", ALICE, (FORBIDDEN,), None) is State.ALLOCATED
