"""The jobs of mapped users, asked for at once by their names: under ids of Slurm's own choice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from extender.bind.binder import NotBound, verified
from extender.placement.ledger import Ledger
from extender.placement.recovery import named_by_their_pods, recovered, to_read
from extender.record.config import Context, PlacementConfig
from extender.record.events import (
    Allocate,
    CancelJob,
    ClusterObserved,
    Failure,
    FindJob,
    GraceStarted,
    HoldJob,
    JobsPolled,
    Outcome,
    PodVanished,
    ReadJob,
    Recovered,
    Remedy,
    SlurmRestarted,
    Submit,
    WriteAllocation,
)
from extender.record.job_tracking import NodeCheck
from extender.record.ownership import Identity, own_key, proof
from extender.record.states import State
from extender.request.pod import Pod
from slurm_client.model import Job, JobSpec, JobState
from tests.builders import pod
from tests.placement.ledger_steps import job_id_of, state_of
from tests.placement.ledger_world import LOST, NATIVE, VIEW, World, calm_down, job_state, of_user
from wellknown.job_key import PlaceholderKey
from wellknown.names import ATTEMPT, JOB_ID, JOB_PROOF, NODE

RULES = PlacementConfig(secret=b"known to the replicas")
ALICE = 2001
KEY = PlaceholderKey(RULES.cluster, "default", "p", "u1", 1)
SLUID, SUBMITTED = "sAB7", 1_800_000_000


@pytest.fixture
def world() -> World:
    return World(RULES)


def asks(world: World, uid: str) -> Allocate:
    """The Pod was seen, and its allocation is under way."""
    while world.news:
        world.hear()
    (effect,) = [each for each in world.effects if isinstance(each, Allocate) and each.uid == uid]
    world.effects.remove(effect)
    return effect


def created(world: World) -> str:
    return world.create_pod(request=of_user(ALICE))


def job_of(world: World, uid: str) -> Job:
    return world.jobs[job_id_of(world, uid)]


def test_a_pod_is_placed_by_a_job_whose_id_slurm_chose(world: World) -> None:
    uid = created(world)
    done = world.settle()
    assert not any(isinstance(each, Submit) for each in done)
    job, pod = job_of(world, uid), world.pods[uid]
    assert job.id not in RULES.ids
    assert (job.user_id, pod.job_id) == (ALICE, job.id)
    key = own_key(job.id, pod, RULES)
    assert key is not None
    assert (key.own_name(RULES.secret), job.admin_comment) == (job.name, "")
    world.bind(uid)
    world.settle()
    assert state_of(world, uid) is State.BOUND


def test_without_room_it_queues_under_an_id_of_ours(world: World) -> None:
    for _ in range(2):
        created(world)
    world.settle()
    uid = created(world)
    world.settle()
    assert state_of(world, uid) is State.QUEUED
    assert job_id_of(world, uid) in RULES.ids


def test_a_reply_that_is_lost_makes_no_second_job(world: World) -> None:
    uid = created(world)
    effect = asks(world, uid)
    world.allocate(effect)
    world.finish(effect, LOST)
    world.pass_time(1.0)
    done = world.settle()
    assert any(isinstance(each, FindJob) for each in done)
    assert not any(isinstance(each, Allocate | Submit) for each in done)
    assert state_of(world, uid) is State.ALLOCATED
    assert [job.name for job in world.live_jobs(uid)] == [effect.job.name]


@pytest.mark.parametrize("user", [None, 2002])
def test_one_whose_reply_is_lost_is_given_back_before_another_owners_is_asked_for(
    world: World, user: int | None
) -> None:
    """It is sought as the owner's that it was asked for, and not as its Pod's owner of now."""
    uid = created(world)
    effect = asks(world, uid)
    world.allocate(effect)
    world.finish(effect, LOST)
    world.edit(uid, user, forbidden=False)
    calm_down(world)  # which takes no second job beside the first
    assert state_of(world, uid) is State.BOUND
    (job,) = world.live_jobs(uid)
    assert job.user_id == (user or 0)


def test_one_that_arrives_after_all_is_the_one_that_is_used(world: World) -> None:
    uid = created(world)
    effect = asks(world, uid)
    world.finish(effect, LOST)
    world.pass_time(1.0)
    (find,) = [each for each in world.effects if isinstance(each, FindJob)]
    world.effects.remove(find)
    world.finish(find, None)
    world.allocate(effect)
    world.pass_time(1.0)
    world.settle()
    assert state_of(world, uid) is State.ALLOCATED
    assert len(world.live_jobs(uid)) == 1


def test_the_next_leader_finds_it(world: World) -> None:
    uid = created(world)
    world.allocate(asks(world, uid))
    world.restart()
    world.settle()
    assert state_of(world, uid) is State.ALLOCATED
    assert len(world.live_jobs(uid)) == 1


def test_the_next_leader_believes_the_proof_on_a_pod_that_runs(world: World) -> None:
    uid = world.bind_at_once(request=of_user(ALICE))
    job_id = job_id_of(world, uid)
    world.restart()
    assert (state_of(world, uid), job_id_of(world, uid)) == (State.BOUND, job_id)


def test_nobody_proves_an_id_without_the_secret(world: World) -> None:
    uid = created(world)
    world.settle()
    pod = world.pods[uid]
    key = own_key(pod.job_id or 0, pod, RULES)
    assert key is not None
    guessed = proof(key, Identity(77, "s77", 1), replace(RULES, secret=b"guessed"))
    assert own_key(77, pod._replace(job_id=77, proof=guessed), RULES) is None
    assert own_key(77, pod._replace(job_id=77), RULES) is None
    for odd in ("\u00fc", "1/s", "1//", "x/y/z"):
        assert own_key(77, pod._replace(job_id=77, proof=odd), RULES) is None
    nobody = replace(RULES, secret=b"")
    assert own_key(77, pod._replace(job_id=77, proof=guessed), nobody) is None


def test_a_pod_that_is_deleted_before_slurm_answers_leaves_no_job(world: World) -> None:
    uid = created(world)
    effect = asks(world, uid)
    world.remove_pod(uid)
    world.hear()
    world.allocate(effect)
    world.finish(effect, LOST)
    world.pass_time(1.0)
    world.settle()
    assert world.live_jobs(uid) == []


def test_what_has_its_id_after_slurm_forgot_it_is_left_alone(world: World) -> None:
    world.save()
    uid = world.bind_at_once(request=of_user(ALICE))
    node, job_id = world.pods[uid].node, job_id_of(world, uid)
    world.kill_slurmctld()
    other = Job(job_id, job_state("RUNNING"), name=NATIVE, nodes=("n1",), user_id=ALICE)
    world.jobs[job_id] = other
    world.settle()
    assert world.jobs[job_id] == other
    assert world.pods[uid].node == node
    assert job_id_of(world, uid) in RULES.ids


def test_the_end_of_a_job_that_has_its_id_after_slurm_forgot_it_is_not_the_pods(world: World) -> None:
    world.save()
    uid = world.bind_at_once(request=of_user(ALICE))
    node, job_id = world.pods[uid].node, job_id_of(world, uid)
    world.kill_slurmctld()
    while world.news:
        world.hear()
    ended = Job(job_id, job_state("CANCELLED"), name=NATIVE, nodes=("n1",), user_id=ALICE)
    world.jobs[job_id] = ended
    world.tell(JobsPolled(frozenset({job_id}), {job_id: ended.state}, world.now))
    world.settle()
    assert world.jobs[job_id] == ended
    assert (world.pods[uid].node, world.pods[uid].deleting) == (node, False)
    assert job_id_of(world, uid) in RULES.ids


def test_slurms_restart_puts_the_jobs_in_doubt_whose_ids_it_chose(world: World) -> None:
    uid = world.bind_at_once(request=of_user(ALICE))
    world.tell(SlurmRestarted())
    record = world.ledger.record_of(uid)
    assert record is not None
    assert record.job.unverified
    world.settle()
    assert state_of(world, uid) is State.BOUND


@pytest.mark.parametrize("what", [{"group_id": 100}, {"priority": 5}])
def test_what_a_user_may_not_ask_is_asked_for_him(world: World, what: dict[str, Any]) -> None:
    request = of_user(ALICE)
    uid = world.create_pod(request=replace(request, job=replace(request.job, **what)))
    world.hear()
    assert [type(each) for each in world.effects if each.uid == uid] == [Submit]


def proven(uid: str, job_id: int, **given: Any) -> Pod:
    """A Pod that is bound by a job of Slurm's own id, as a leader that begins finds it."""
    key = PlaceholderKey(RULES.cluster, "default", "p", uid, 1)
    told = proof(key, Identity(job_id, SLUID, SUBMITTED), RULES)
    notes = {ATTEMPT: "1", JOB_ID: str(job_id), JOB_PROOF: told, NODE: "n1"}
    return pod(name="p", uid=uid, gates=(), node="n1", annotations=notes, **given)


STRANGER = Job(
    500,
    job_state("RUNNING"),
    name="bobs",
    user_id=2002,
    nodes=("n1",),
    submit_time=SUBMITTED,
    sluid="another",
)
"""Which got the id of a Pod's job in the second in which that was submitted, and forgotten."""


@pytest.mark.parametrize("name", ["bobs", "p@default"])
def test_a_strangers_job_that_got_a_pods_id_and_its_node_is_not_taken_for_the_pods(name: str) -> None:
    """slurmctld was killed, and forgot the job of a Pod that runs; then another leads."""
    stranger, at = replace(STRANGER, name=name), Context(1.0, RULES, VIEW)
    assert recovered((proven("u1", 500),), (stranger,), at)[0] is not None  # its job was lost
    ledger = Ledger(RULES)
    ledger.apply(ClusterObserved(VIEW), 0.0)
    ledger.apply(Recovered((proven("u1", 500),), (stranger,)), 1.0)
    effects = list(ledger.apply(PodVanished("u1"), 2.0))
    while effects:
        effect = effects.pop()
        assert not isinstance(effect, CancelJob | HoldJob), effect
        if isinstance(effect, ReadJob):
            effects += ledger.apply(Outcome(effect, stranger), 3.0)


def test_another_job_of_the_pod_that_got_the_id_is_not_the_one_that_it_names() -> None:
    key = PlaceholderKey(RULES.cluster, "default", "p", "u1", 1, 1)
    job = replace(STRANGER, name=key.own_name(RULES.secret), user_id=ALICE)
    record, orphans = recovered((proven("u1", 500),), (job,), Context(1.0, RULES, VIEW))
    assert record is not None
    assert (record.state, record.job.node_check, orphans) == (State.BOUND, NodeCheck.ROUTINE, ())


@pytest.mark.parametrize("sluid", [SLUID, ""])
@pytest.mark.parametrize("name", ["mine", "p@default"])
def test_the_next_leader_knows_a_job_that_its_owner_has_renamed(name: str, sluid: str) -> None:
    """Before 25.11 jobs have no SLUID."""
    job = replace(STRANGER, name=name, user_id=ALICE, sluid=sluid, start_time=SUBMITTED + 1)
    record, orphans = recovered((proven("u1", 500),), (job,), Context(1.0, RULES, VIEW))
    assert record is not None
    assert (record.state, record.job.id, record.job.name, orphans) == (State.BOUND, 500, name, ())
    assert not record.job.unsigned


@pytest.mark.parametrize("notes", [{}, {JOB_PROOF: "", JOB_ID: "77"}])
@pytest.mark.parametrize("attempt", ["", "9", "1000000"])
def test_a_forged_attempt_takes_no_job_from_a_pod_that_runs(attempt: str, notes: dict[str, str]) -> None:
    key = PlaceholderKey(RULES.cluster, "default", "p", "u1", 3)
    told = proof(key, Identity(500, SLUID, SUBMITTED), RULES)
    kept = {JOB_ID: "500", JOB_PROOF: told, NODE: "n1", ATTEMPT: attempt}
    there = pod(name="p", uid="u1", gates=(), node="n1", annotations=kept | notes)
    asked = replace(there.request, job=replace(there.request.job, user_id=ALICE))
    there = there._replace(request=asked)
    job = replace(STRANGER, name=key.own_name(RULES.secret), user_id=ALICE, sluid=SLUID)
    assert list(named_by_their_pods([job], [there], RULES)) == [(job, key)]
    record, orphans = recovered((there,), (job,), Context(1.0, RULES, VIEW))
    assert record is not None
    assert (record.state, record.job.id, record.attempt, orphans) == (State.BOUND, 500, 3, ())
    if not notes:  # then the proof alone tells, whatever the job is called
        record, _ = recovered((there,), (replace(job, name="mine"),), Context(1.0, RULES, VIEW))
        assert record is not None
        assert (record.state, record.job.id, record.attempt) == (State.BOUND, 500, 3)


def test_without_sluids_what_started_later_is_another_job() -> None:
    job = replace(STRANGER, sluid="", user_id=ALICE, start_time=SUBMITTED + 2)
    record, _ = recovered((proven("u1", 500),), (job,), Context(1.0, RULES, VIEW))
    assert record is not None
    assert not record.job.owned


@pytest.mark.parametrize("proof", ["", "forged"])
def test_a_proof_that_is_missing_or_wrong_is_written_anew(world: World, proof: str) -> None:
    uid = world.bind_at_once(request=of_user(ALICE))
    right = world.pods[uid].proof
    world.write(world.pods[uid]._replace(proof=proof))
    world.settle()
    assert world.pods[uid].proof == right != proof


@pytest.mark.parametrize("secret", [b"another", b""])
@pytest.mark.parametrize(("user", "known"), [(ALICE, True), (2002, False)])
def test_a_pod_knows_its_job_after_the_secret_was_changed(secret: bytes, user: int, known: bool) -> None:
    """By what anybody can tell of its name: the Pod names it, and it is of the Pod's user."""
    key = PlaceholderKey(RULES.cluster, "default", "p", "u1", 1)
    rules, there = replace(RULES, secret=secret), proven("u1", 500)
    asked = replace(there.request, job=replace(there.request.job, user_id=ALICE))
    there = there._replace(request=asked)
    job = replace(STRANGER, name=key.own_name(RULES.secret), user_id=user)
    assert list(to_read([there], {500: job.state}, rules)) == [500]
    assert list(named_by_their_pods([job], [there], rules)) == ([(job, key)] if known else [])
    record, _ = recovered((there,), (job,), Context(1.0, rules, VIEW))
    assert (record is not None) is known
    assert record is None or (record.state, record.job.id) == (State.BOUND, 500)


def test_after_a_restart_of_slurm_nothing_vouches_for_an_id_that_it_chose() -> None:
    there = proven("u1", 500)
    assert list(to_read([there], {500: job_state("RUNNING")}, RULES, range(501, 900))) == []
    assert list(to_read([there], {500: job_state("RUNNING")}, RULES, range(900))) == [500]


def test_after_a_restart_of_slurm_a_job_is_read_before_it_is_ended(world: World) -> None:
    uid = world.bind_at_once(request=of_user(ALICE))
    job_id = job_id_of(world, uid)
    world.remove_pod(uid)
    world.hear()
    (effect,) = [each for each in world.effects if isinstance(each, CancelJob)]
    world.effects.remove(effect)
    world.tell(SlurmRestarted())
    world.finish(effect, LOST)
    world.jobs[job_id] = replace(STRANGER, id=job_id)
    world.pass_time(1.0)
    assert [type(each) for each in world.effects] == [ReadJob]
    world.settle()
    assert world.jobs[job_id].state.running


@pytest.mark.parametrize(
    ("user", "job_id", "own"), [(ALICE, 7, True), (2002, 7, False), (2002, 500, True)]
)
def test_a_job_is_that_pods_that_has_its_name_and_user_or_names_it(
    user: int, job_id: int, own: bool
) -> None:
    """Anybody may call a job of theirs like a Pod's; and a Pod's user may be another by now."""
    key, there = PlaceholderKey(RULES.cluster, "default", "p", "u1", 1), proven("u1", 500)
    asked = replace(there.request, job=replace(there.request.job, user_id=ALICE))
    job = replace(STRANGER, id=job_id, name=key.own_name(RULES.secret), user_id=user)
    found = list(named_by_their_pods([job], [there._replace(request=asked)], RULES))
    assert found == ([(job, key)] if own else [])


RENAMED = replace(
    STRANGER, name="mine", user_id=ALICE, sluid=SLUID, start_time=SUBMITTED, partition="main"
)
"""The job that `proven` names."""


def after_recovery(there: Pod, job: Job, rules: PlacementConfig = RULES) -> tuple[Ledger, list[Any]]:
    ledger = Ledger(rules)
    ledger.apply(ClusterObserved(VIEW), 0.0)
    return ledger, list(ledger.apply(Recovered((there,), (job,)), 1.0))


def test_a_renamed_job_whose_pod_ended_while_nobody_led_is_ended() -> None:
    there = proven("u1", 500)._replace(finished=True)
    ledger, effects = after_recovery(there, RENAMED)
    (cancel,) = [each for each in effects if isinstance(each, CancelJob)]
    assert (cancel.job_id, cancel.name) == (500, "mine")
    (read,) = ledger.apply(Outcome(cancel, Failure(Remedy.OTHER_JOB, "renamed again")), 2.0)
    assert isinstance(read, ReadJob)
    (again,) = ledger.apply(Outcome(read, replace(RENAMED, name="mine too")), 3.0)
    assert isinstance(again, CancelJob)
    assert (again.job_id, again.name) == (500, "mine too")


@pytest.mark.parametrize("state", ["RUNNING", "RUNNING,CONFIGURING"])
def test_an_allocated_pod_keeps_its_job_after_the_secret_was_changed(state: str) -> None:
    key, rules = KEY, replace(RULES, secret=b"another")
    job = replace(RENAMED, name=key.own_name(RULES.secret), state=JobState.parse(state))
    there = proven("u1", 500)._replace(node=None)
    ledger, effects = after_recovery(there, job, rules)
    record = ledger.record_of("u1")
    assert record is not None
    assert (record.state, record.job.id) == (State.ALLOCATED, 500)
    (written,) = effects
    assert isinstance(written, WriteAllocation)
    assert own_key(500, there._replace(proof=written.proof), rules) == key


@pytest.mark.parametrize(("job", "after"), [(RENAMED, State.EVICTING), (STRANGER, State.BOUND)])
def test_the_grace_time_of_another_job_with_the_id_ends_no_pod(job: Job, after: State) -> None:
    ledger, _ = after_recovery(proven("u1", 500), RENAMED)
    ledger.apply(GraceStarted("u1", replace(job, preempt_time=SUBMITTED)), 2.0)
    record = ledger.record_of("u1")
    assert record is not None
    assert record.state is after


def test_a_job_that_comes_when_nobody_asks_for_it_any_more_is_ended() -> None:
    ledger = Ledger(RULES)
    ledger.apply(ClusterObserved(VIEW), 0.0)
    job = replace(RENAMED, name=KEY.own_name(RULES.secret))
    (read,) = ledger.apply(Outcome(Allocate("u1", JobSpec(job.name, 1, 1)), job), 1.0)
    assert isinstance(read, ReadJob)
    (cancel,) = ledger.apply(Outcome(read, job), 2.0)
    assert isinstance(cancel, CancelJob)
    assert (cancel.job_id, cancel.name) == (500, job.name)


@pytest.mark.parametrize("notes", [{}, {JOB_PROOF: "1.0/7/s/ff"}, {ATTEMPT: "2"}])
def test_a_name_that_was_copied_binds_nothing(notes: dict[str, str]) -> None:
    there = proven("u1", 500)._replace(node=None)
    job = replace(RENAMED, nodes=("n1",))
    assert verified(there, job, "n1", VIEW, RULES).node == "n1"
    copied = replace(job, id=501, sluid="copied", name=KEY.own_name(RULES.secret))
    named = pod(name="p", uid="u1", annotations={ATTEMPT: "1", JOB_ID: "501", NODE: "n1"} | notes)
    with pytest.raises(NotBound, match="is not this Pod's placeholder"):
        verified(named, copied, "n1", VIEW, RULES)
    with pytest.raises(NotBound, match="is not this Pod's placeholder"):
        verified(there._replace(attempt=2), job, "n1", VIEW, RULES)
