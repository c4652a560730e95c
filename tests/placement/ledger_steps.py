"""The steps and situations that tests of the ledger share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from extender.record.events import Effect, Failure, Remedy, ReportWaiting, Submit
from extender.record.states import State
from slurm_client.model import Job, JobState
from tests.placement.ledger_world import World


def settle(world: World) -> list[Effect]:
    """Everybody does what there is to do, except for Slurm's scheduler; returns what was done."""
    return world.settle()


def settle_news(world: World) -> None:
    while world.news:
        world.hear()


def poll(world: World) -> list[Effect]:
    world.ask()
    world.answer()
    return settle(world)


def settle_refused(world: World, uid: str) -> list[Effect]:
    """kube-scheduler refuses the Node and offers none, as every replica has had the time to say."""
    world.refuse(uid, offers=False)
    done = settle(world)
    world.pass_time(0.3)
    return done + settle(world)


def state_of(world: World, uid: str) -> State | None:
    return next((p.state for p in world.ledger.placeholders if p.uid == uid), None)


def bound_pod(world: World) -> str:
    uid = world.create_pod()
    settle(world)
    world.bind(uid)
    settle(world)
    assert state_of(world, uid) is State.BOUND
    return uid


def pod_that_finds_no_room(world: World) -> str:
    for _ in range(2):
        bound_pod(world)
    uid = world.create_pod()
    settle(world)
    return uid


def job_id_of(world: World, uid: str) -> int:
    (job,) = world.live_jobs(uid)
    return job.id


def kinds(effects: list[Effect]) -> list[type]:
    return [type(effect) for effect in effects]


def stranger_of(effect: Submit) -> Job:
    """Another's job, under the id of ours."""
    return replace(world_job(effect), name="theirs", admin_comment="somebody else's")


def submit_and_lose_the_answer(world: World, uid: str) -> Submit:
    """Whether Slurm has taken the job under the id is not known."""
    settle_news(world)
    effect = world.effects.pop(0)
    assert isinstance(effect, Submit)
    assert effect.uid == uid
    world.finish(effect, Failure(Remedy.AGAIN, "timeout"))
    return effect


def outlast(world: World, seconds: int) -> list[Effect]:
    done: list[Effect] = []
    for _ in range(seconds):
        world.pass_time(1.0)
        done += poll(world)
    return done


def world_job(effect: Submit) -> Job:
    """The job that a submission would make."""
    other = World()
    other.do(effect)
    return other.jobs[effect.job_id]


def forget_the_start(world: World, uid: str, **changes: Any) -> int:
    """slurmctld was killed before it had saved that this Pod's job runs."""
    job_id = job_id_of(world, uid)
    waiting = replace(world.jobs[job_id], state=JobState("PENDING"), nodes=())
    world.jobs[job_id] = replace(waiting, **changes)
    world.disturbed.add(uid)
    return job_id


def forget_the_job(world: World, uid: str) -> int:
    """slurmctld was killed before it had saved the submission."""
    job_id = job_id_of(world, uid)
    del world.jobs[job_id]
    return job_id


def refused_by_slurm(world: World, kind: type[Effect], times: int) -> list[ReportWaiting]:
    """Slurm refuses such requests, so many times; returns what was told meanwhile."""
    told: list[ReportWaiting] = []
    while times:
        while world.effects:
            effect = world.effects.pop(0)
            refused = isinstance(effect, kind)
            no = Failure(Remedy.CHANGE, "Invalid account")
            world.finish(effect, no if refused else world.do(effect))
            told += [effect] if isinstance(effect, ReportWaiting) else []
            times -= refused
        world.pass_time(5.0)
    return told


def a_rival_of(world: World) -> None:
    """Another replica leads from now on; the deposed one acts."""
    world.fail_over()
    world.swap()
