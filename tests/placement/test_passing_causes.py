"""When the cause of a refusal is gone, the extender requests the job again. The longest backoff is the
longest time until this request."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st

from extender.explain.sentences import sentence
from extender.record.config import PlacementConfig
from extender.record.events import Effect, Failure, Remedy, Submit
from extender.record.states import State
from tests.placement.ledger_world import World, of_user

if TYPE_CHECKING:
    from collections.abc import Callable


ALICE, BOB = 2001, 2002
RULES = PlacementConfig(retry=(20.0, 120.0), altered_job_pause=60.0)
NODES = tuple(f"n{number}" for number in range(1, 13))
LONGEST = 1.25 * RULES.retry[1] + RULES.altered_job_pause
"""Longest time until the next request, in seconds: the longest backoff with the random part, and one
pause after a wrong job."""


class Site(World):
    """A world with room for every Pod. Slurm acts each time before the ledger wakes."""

    def live_on(self, seconds: float) -> list[Effect]:
        """Lets time pass. Returns the effects carried out."""
        done, until = self._act(), self.now + seconds
        while self.now < until:
            wake = min(self.ledger.next_wake(), self.now + 30.0)
            self.pass_time(min(max(wake, self.now + 0.001), until) - self.now)
            done += self._act()
        return done

    def _act(self) -> list[Effect]:
        done = self.settle()
        done += self.start_and_poll()
        for uid in sorted(self.pods):
            self.bind(uid)
        return done + self.settle()


def _set(name: str, value: object, world: World) -> None:
    setattr(world, name, value)


def _refuse(remedy: Remedy, world: World) -> None:
    failure = Failure(remedy, "Slurm refuses the request")
    world.refusals = dict.fromkeys((None, ALICE, BOB), failure)


CAUSES: dict[str, Callable[[World], None]] = {
    "the directory is away": partial(_set, "unknown_users", {ALICE, BOB}),
    "jobs are given to another user": partial(_set, "gives_to", (7, 7)),
    "the AdminComment is overwritten": partial(_set, "overwrites_keys", True),
    "a plugin makes another job": partial(_set, "rewrites", {"memory_mb": 0, "cpus_per_node": 0}),
    "nodes lose their features": partial(_set, "lacks_features", True),
    "Slurm is full": partial(_set, "max_jobs", 0),
    **{
        f"Slurm refuses: {remedy.name}": partial(_refuse, remedy)
        for remedy in (
            Remedy.CHANGE,
            Remedy.UNEXPLAINED,
            Remedy.OPERATOR,
            Remedy.LATER,
            Remedy.NO_ROOM,
            Remedy.AGAIN,
        )
    },
}


def mend(world: World) -> None:
    """Removes every cause of a refusal. Jobs that slurmctld holds stay held."""
    world.unknown_users, world.refusals, world.rewrites = set(), {}, {}
    world.gives_to = world.max_jobs = None
    world.overwrites_keys = world.lacks_features = False


@settings(max_examples=40)
@given(
    causes=st.lists(
        st.tuples(st.sampled_from(sorted(CAUSES)), st.sampled_from([0.5, 20.0, 300.0])),
        min_size=1,
        max_size=3,
    ),
    users=st.lists(st.sampled_from([None, ALICE, BOB]), min_size=1, max_size=4),
    external=st.booleans(),
)
def test_every_waiting_pod_is_placed_after_the_cause_is_gone(
    causes: list[tuple[str, float]], users: list[int | None], external: bool
) -> None:
    world = Site(RULES, NODES, external=external)
    uids: list[str] = []
    for name, lasts in causes:
        mend(world)
        CAUSES[name](world)
        uids += [world.create_pod(request=of_user(user)) for user in users[: 1 + len(uids)]]
        world.live_on(lasts)
    mend(world)
    world.live_on(LONGEST)
    waiting = {uid: world.state_of(uid) for uid in uids if world.pods[uid].life.node is None}
    assert not waiting


UNKNOWN = "slurmctld does not know user 2001 (is sssd running on its host?)"


def test_job_of_an_unknown_user_is_retried_with_backoff() -> None:
    """Slurm 24.11 accepts the batch job, and then holds the job."""
    world = Site(RULES, NODES, external=False, unknown_users={ALICE})
    uids = [world.create_pod(request=of_user(ALICE)) for _ in range(3)]
    world.live_on(20)
    assert {world.state_of(uid) for uid in uids} == {State.INVALID}
    told = [world.shown(uid) for uid in uids]
    assert {sentence(each) for each in told} == {UNKNOWN}
    (due,) = {each.dues[0].at for each in told}
    assert due <= 20 + 1.25 * RULES.retry[0]
    done = world.live_on(5 * RULES.retry[0])
    assert 2 <= sum(isinstance(each, Submit) for each in done) <= 3
    mend(world)
    world.live_on(max(each.dues[0].at for each in map(world.shown, uids)) - world.now + 60)
    assert {world.state_of(uid) for uid in uids} == {State.BOUND}


def test_a_job_that_an_administrator_holds_is_left_alone() -> None:
    world = Site(RULES, NODES, external=False)
    uid = world.create_pod(request=of_user(ALICE))
    world.rules = world.ledger.rules = replace(RULES, fast_path=False)
    world.settle()
    (job,) = world.live_jobs(uid)
    held: dict[str, Any] = {"held": True, "reason": "JobHeldAdmin", "restart_count": 1}
    world.jobs[job.id] = replace(job, **held)
    world.live_on(600)
    assert world.state_of(uid) is State.QUEUED


def test_a_job_that_slurmctld_holds_for_its_constraints_is_replaced() -> None:
    """slurmctld does not release such a job, even when a node with the features is back (24.11,
    26.05)."""
    world = Site(RULES, NODES, lacks_features=True)
    uid = world.create_pod(request=of_user(ALICE))
    world.live_on(20)
    assert world.state_of(uid) is State.INVALID
    assert "(BadConstraints)" in sentence(world.shown(uid))
    assert not world.live_jobs(uid)
    mend(world)
    world.live_on(2 * RULES.retry[0])
    assert world.state_of(uid) is State.BOUND
