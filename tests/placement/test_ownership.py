"""Tests of the owner of a job: the requested owner, the owner in Slurm, and changes of the policy."""

from __future__ import annotations

from dataclasses import replace

import pytest

from extender.explain.sentences import sentence
from extender.placement.recovery import recovered
from extender.pod_request.job_request import Request
from extender.record.events import CancelJob, ClusterObserved, Submit, WriteAllocation
from extender.record.states import State
from slurm_client.model import Job
from tests.builders import kube_node, moment, placeholder_job, pod
from tests.placement.ledger_world import NODES, REQUEST, VIEW, World

ALICE, BOB = 2001, 2002
GIVEN_AWAY = "Slurm gave job JOB to {} instead of user 2001 and group 2001: the job is cancelled"
FORBIDDEN = "annotation user-id: '2002' is not allowed"


def asks(world: World, uid: str, user: int | None, *problems: str) -> None:
    """Changes the user of the Pod's request, as the author or a new policy does."""
    now = world.pods[uid]
    job = replace(now.request.job, user_id=user)
    world.write(now._replace(request=replace(now.request, job=job, problems=problems)))


def of_alice(world: World) -> str:
    return world.create_pod(request=replace(REQUEST, job=replace(REQUEST.job, user_id=ALICE)))


def waits(world: World, uid: str) -> Job:
    world.settle()
    assert world.state_of(uid) is State.QUEUED
    return world.job_of(uid)


def queued_for_alice(world: World) -> str:
    uid = of_alice(world)
    waits(world, uid)
    return uid


def look(world: World) -> None:
    """Waits until the ledger has read the waiting job."""
    world.wait(2.0)


def test_job_is_requested_as_its_user_and_never_immediately(world: World) -> None:
    uid = of_alice(world)
    submitted = [e for e in world.settle() if isinstance(e, Submit)]
    assert [(e.immediate, e.job.user_id) for e in submitted] == [(False, ALICE)]
    assert world.job_of(uid).user_id == ALICE
    look(world)
    assert world.state_of(uid) is State.QUEUED


@pytest.mark.parametrize(
    ("user", "group", "words"),
    [
        (98, 98, GIVEN_AWAY.format("user 98 and group 98")),
        (ALICE, 0, GIVEN_AWAY.format("user 2001 and group 0")),
        (99, 99, "slurmctld does not know user 2001 (is sssd running on its host?)"),
    ],
    ids=["another user", "another group", "nobody"],
)
def test_a_job_given_to_another_user_is_cancelled(user: int, group: int, words: str) -> None:
    world = World(gives_to=(user, group))
    uid = queued_for_alice(world)
    job_id = world.job_id_of(uid)
    look(world)
    assert world.live_jobs(uid) == []
    assert sentence(world.refusal_of(uid)) == words.replace("JOB", str(job_id))


def test_running_job_of_another_user_is_not_granted_to_the_pod() -> None:
    world = World(gives_to=(0, 0))
    uid = queued_for_alice(world)
    done = world.start_and_poll()
    assert not any(isinstance(e, WriteAllocation) for e in done)
    assert any(isinstance(e, CancelJob) for e in done)
    assert "user 0" in sentence(world.refusal_of(uid))


def test_a_pod_refused_for_its_jobs_owner_is_not_tried_again_until_it_changes() -> None:
    world = World(gives_to=(0, 0))
    uid = queued_for_alice(world)
    look(world)
    world.refusal_of(uid)
    assert world.tell_and_settle(ClusterObserved(VIEW)) == []
    world.gives_to = None
    asks(world, uid, BOB)
    assert waits(world, uid).user_id == BOB


def test_job_without_a_requested_user_may_belong_to_any_user() -> None:
    """Without a requested user, the job belongs to the user of the token, and the extender does not know
    this user."""
    world = World(gives_to=(64030, 64030), rules=replace(World().rules, fast_path=False))
    uid = world.create_pod()
    waits(world, uid)
    look(world)
    assert world.state_of(uid) is State.QUEUED


# Changes of the policy or the Pod


def test_queued_job_that_is_no_longer_allowed_is_given_back(world: World) -> None:
    uid = queued_for_alice(world)
    asks(world, uid, None, FORBIDDEN)
    world.settle()
    assert world.live_jobs(uid) == []
    assert sentence(world.refusal_of(uid)) == FORBIDDEN
    asks(world, uid, ALICE)
    assert waits(world, uid).user_id == ALICE


def test_queued_job_is_requested_again_without_a_user(world: World) -> None:
    """The next job starts at once if Slurm has room. The next job requests no user, so the ledger
    accepts any user."""
    uid = queued_for_alice(world)
    world.tells_grants = False  # Slurm's reply has no grant: the ledger reads the job
    asks(world, uid, None)
    world.poll()
    world.poll()
    assert world.state_of(uid) is State.ALLOCATED
    assert world.job_of(uid).user_id == 0


def test_queued_job_is_requested_again_for_another_user(world: World) -> None:
    uid = queued_for_alice(world)
    asks(world, uid, BOB)
    world.settle()
    world.poll()
    assert waits(world, uid).user_id == BOB


def test_granted_job_stays_if_its_user_is_no_longer_allowed(world: World) -> None:
    """The job stays even if the ledger has not read the grant yet."""
    uid = queued_for_alice(world)
    world.schedule()
    world.poll_alone()
    asks(world, uid, None, FORBIDDEN)
    world.settle()
    world.bind_and_settle(uid)
    assert world.state_of(uid) is State.BOUND
    assert world.job_of(uid).user_id == ALICE


@pytest.mark.parametrize("forbidden", [(), (FORBIDDEN,)])
def test_bound_pod_keeps_its_first_request(forbidden: tuple[str, ...]) -> None:
    world = World()
    uid = queued_for_alice(world)
    world.start_and_poll()
    world.bind_and_settle(uid)
    asks(world, uid, BOB, *forbidden)
    assert world.settle() == []
    world.jobs.clear()  # the same holds after Slurm has lost all jobs
    for _ in range(world.rules.confirmations):
        world.poll()
    world.settle()
    assert world.state_of(uid) is State.BOUND
    assert world.job_of(uid).user_id == ALICE


# After a restart

AT = moment(*(kube_node(name) for name in NODES))


@pytest.mark.parametrize(
    ("job", "user", "problems", "asked", "state"),
    [
        ("PENDING", ALICE, (), ALICE, State.QUEUED),
        ("RUNNING", ALICE, (), ALICE, State.ALLOCATED),
        ("PENDING", 0, (), ALICE, State.REPLACING),
        ("RUNNING", 0, (), ALICE, State.REPLACING),
        ("PENDING", 0, (FORBIDDEN,), None, State.REPLACING),
        ("RUNNING", ALICE, (FORBIDDEN,), None, State.ALLOCATED),
    ],
)
def test_a_found_job_is_kept_if_its_user_is_right_or_its_pod_was_allowed(
    job: str, user: int, problems: tuple[str, ...], asked: int | None, state: State
) -> None:
    waiting = pod(uid="u1")
    wanted = replace(waiting.request.job, user_id=asked)
    waiting = waiting._replace(request=Request(wanted, waiting.request.constraints, problems))
    node = "n1" if job == "RUNNING" else None
    mine = placeholder_job(waiting, job, node=node, user_id=user, group_id=user)
    record, stray = recovered((waiting,), (mine,), AT)
    assert record is not None
    assert (record.state, stray) == (state, ())
