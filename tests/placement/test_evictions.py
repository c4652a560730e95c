"""A Pod's author, or a user who deletes the Pod, cannot delay an eviction."""

from __future__ import annotations

import pytest

from extender.explain.sentences import sentence
from extender.record.ends import end_of
from extender.record.events import EvictPod
from extender.record.states import State
from slurm_client.job_state import JobState
from tests.builders import changed
from tests.placement.ledger_world import World, calm_down
from wellknown.allocation import Allocation
from wellknown.job_key import PlaceholderKey

A_DAY = 86_400


def evictions(world: World) -> list[EvictPod]:
    return [effect for effect in world.effects if isinstance(effect, EvictPod)]


# Long grace periods


@pytest.mark.parametrize("grace", [600, A_DAY])
def test_end_of_its_job_shortens_the_grace_period_of_a_pod(world: World, grace: int) -> None:
    uid = world.bound_pod()
    world.delete_pod(uid, grace)
    world.settle()
    assert world.state_of(uid) is State.BOUND  # the Pod keeps the job until the job ends
    world.disturb(world.job_id_of(uid), "PREEMPTED")
    world.poll()
    assert world.pods[uid].life.deletion_grace == world.pods[uid].life.eviction_grace
    world.pass_time(world.pods[uid].life.eviction_grace)
    assert uid not in world.pods


def test_eviction_is_repeated_while_the_pod_has_a_longer_grace_period(world: World) -> None:
    """Another user deletes the Pod with a long grace period before the ledger's eviction takes
    effect."""
    uid = world.bound_pod()
    world.lose_job(uid, "CANCELLED")
    (eviction,) = evictions(world)
    world.effects.remove(eviction)
    world.finish(eviction, None)  # kube-apiserver reports success
    world.delete_pod(uid, A_DAY)
    world.settle()
    world.wait(world.rules.reevict)
    assert world.pods.get(uid) is None or world.pods[uid].leaving


def test_terminating_pod_is_evicted_when_its_jobs_grace_time_starts(world: World) -> None:
    uid = world.bound_pod()
    world.delete_pod(uid, A_DAY)
    world.settle()
    world.begin_grace(world.job_id_of(uid))
    world.read_jobs()
    world.settle()
    assert world.state_of(uid) is State.EVICTING
    assert world.pods[uid].leaving


def test_lost_job_of_a_terminating_pod_is_requested_again(world: World) -> None:
    """Without the next job, the Pod would run without a job for a day, and Slurm would give the
    resources to other jobs."""
    uid = world.bound_pod()
    world.delete_pod(uid, A_DAY)
    world.settle()
    world.jobs.clear()
    calm_down(world, 10)
    assert world.live_jobs(uid)


# Attempts and job ids that a user has forged


@pytest.mark.parametrize("attempt", [2, 900])
def test_forged_attempt_does_not_prevent_the_eviction_of_a_bound_pod(world: World, attempt: int) -> None:
    uid = world.bound_pod()
    world.lose_job(uid, "CANCELLED")
    world.forge(uid, attempt)  # so the eviction conflicts
    calm_down(world, 5)
    assert uid not in world.pods


def test_forged_attempt_does_not_stop_the_eviction_at_a_grace_time(world: World) -> None:
    uid, job_id = world.bound_pod_and_job()
    world.begin_grace(job_id)
    world.read_jobs()
    world.forge(uid, 2)
    world.hear_all()
    assert world.state_of(uid) is State.EVICTING
    calm_down(world, 5)
    assert uid not in world.pods
    assert not world.live_jobs(uid)


def test_evicted_pod_keeps_its_job_despite_a_forged_job_id(world: World) -> None:
    """The Pod has a forged allocation. The ledger neither cancels nor watches the job with the forged
    id."""
    *_, uid = world.create_pod(), world.create_pod(), world.settled_pod()
    (job,) = world.live_jobs(uid)
    assert job.state.pending
    world.disturb(job.id, "CANCELLED")
    world.poll_alone()
    read = world.effects.pop()  # reads whether the ledger ended the job
    world.carry_out(read)
    assert world.state_of(uid) is State.EVICTING
    pod = world.pods[uid]
    key = PlaceholderKey(world.rules.cluster, pod.namespace, pod.name, pod.uid, 1, 1)
    forged = key.job_id(world.rules.ids)
    world.write(changed(pod, job_id=forged, allocation=Allocation(forged, "n1")))
    world.hear_all()
    record = world.record(uid)
    assert record.job.id == job.id
    assert record.holds == {"n1"}  # another replica may bind the Pod to n1 by this allocation
    calm_down(world, 5)
    assert uid not in world.pods


@pytest.mark.parametrize("end", ["CANCELLED", "TIMEOUT"])
def test_eviction_looks_up_the_canceller_only_of_a_cancelled_job(world: World, end: str) -> None:
    _, job_id = world.bound_pod_and_job()
    world.disturb(job_id, end)
    world.poll_alone()
    (evict,) = (effect for effect in world.effects if isinstance(effect, EvictPod))
    assert evict.cancelled == (job_id if end == "CANCELLED" else None)


@pytest.mark.parametrize("flags", ["", ",COMPLETING"])
def test_cause_is_the_same_while_the_ended_job_is_completing(flags: str) -> None:
    cause = end_of(7, JobState.parse("CANCELLED" + flags))
    assert sentence(cause) == "Slurm job 7 was cancelled in Slurm (CANCELLED)"
