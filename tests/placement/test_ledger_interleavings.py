"""Tests of the ledger with random steps of both systems, and with lost, late and repeated news."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from extender.jobs.claim import key_of
from extender.record.config import PlacementConfig
from extender.record.events import Event, Submit
from slurm_client.model import Grant
from tests.placement.ledger_world import LOST, World, calm_down, ends_well, of_user
from wellknown.pauses import Pauses

_RULES = PlacementConfig(
    node_exclusion=20.0,
    offer_validity=10.0,
    unbindable=Pauses(5.0, 20.0),
    window=4,
    altered_job_pause=20.0,
)
_FATES = ("done", "done", "done", "reply lost", "lost", "undeliverable", "late")
_INDEX = st.integers(0, 7)
_OWNER = st.sampled_from([None, 2001, 2002])


class Interleavings(RuleBasedStateMachine):
    """Chooses random steps. After the steps, time passes without losses, and every workload must end
    well."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(_RULES)
        self.leader = self.world.acting
        self.last_of_the_deposed: Event | None = None
        """Last event from the deposed replica. After this event, the leader knows all actions of the
        deposed replica."""
        self.forged, self.keys_are_whole = False, True

    @initialize(numbers=st.booleans(), external=st.booleans())
    def begin(self, numbers: bool, external: bool) -> None:
        """Chooses whether Slurm reports the cores and devices of jobs, and whether slurmd starts the
        jobs."""
        self.world = World(_RULES, numbers=numbers, external=external)
        self.leader = self.world.acting

    # Users and kube-scheduler

    @rule(priority=st.integers(0, 1), user=_OWNER)
    def create(self, priority: int, user: int | None) -> None:
        if self.world.made < 6:
            self.world.create_pod(priority, of_user(user))

    @rule(size=st.integers(2, 3), user=_OWNER, heard=st.booleans(), packed=st.booleans())
    def create_group(self, size: int, user: int | None, heard: bool, packed: bool) -> None:
        """Creates a group. With only two nodes, a group of three Pods waits for ever. The watch of the
        other replica may be broken."""
        if self.world.made < 5:
            if self.world.other is not None and not heard:
                self.world.other.unaware_of.add(f"uid-g{self.world.made + 1}")
            self.world.create_group(size, of_user(user), packed=packed)

    @rule(index=_INDEX, like=st.booleans(), user=_OWNER)
    def replace_member(self, index: int, like: bool, user: int | None) -> None:
        """Creates a Pod for a group, as the controller does. The Pod replaces a deleted Pod, or is
        surplus."""
        world = self.world
        groups = [each for each in world.groups.values() if len(world.pods_of(each.uid)) <= each.size]
        if groups and world.made < 10:
            uid = groups[index % len(groups)].uid
            world.replace_member(uid, None if like else of_user(user))

    @precondition(lambda self: self.world.acting.unaware_of)
    @rule()
    def list_again(self) -> None:
        self.world.list_again()

    @precondition(lambda self: not self.forged)
    @rule(index=_INDEX, whole=st.booleans())
    def a_list_lacks(self, index: int, whole: bool) -> None:
        pods = self.world.pods
        of_groups = sorted(uid for uid, pod in pods.items() if pod.group is not None)
        if of_groups:
            uid = of_groups[index % len(of_groups)]
            together = [each.uid for each in self.world.pods_of(pods[uid].workload.uid)]
            self.world.list_lacks(together if whole else [uid])

    @rule(index=_INDEX, missing=st.booleans())
    def claim(self, index: int, missing: bool) -> None:
        pods = sorted(self.world.pods)
        if pods:
            self.world.claim(pods[index % len(pods)], missing=missing)

    @rule(index=_INDEX, never=st.booleans())
    def refuse_for_ever(self, index: int, never: bool) -> None:
        pods = sorted(self.world.pods)
        if pods:
            change = self.world.unbindable.add if never else self.world.unbindable.discard
            change(pods[index % len(pods)])

    @rule(index=_INDEX, seen=st.booleans())
    def delete(self, index: int, seen: bool) -> None:
        pods = sorted(self.world.pods)
        if pods:
            self.world.remove_pod(pods[index % len(pods)], seen=seen)

    @rule(index=_INDEX, grace=st.sampled_from([20, 86_400]))
    def delete_slowly(self, index: int, grace: int) -> None:
        pods = sorted(self.world.pods)
        if pods:
            self.world.delete_pod(pods[index % len(pods)], grace)

    @rule(index=_INDEX, seen=st.booleans(), told=st.booleans())
    def delete_by_force(self, index: int, seen: bool, told: bool) -> None:
        """Deletes a Pod by force, preferably a bound Pod. May carry out the effects at once."""
        pods = self.world.pods
        there = sorted(uid for uid in pods if pods[uid].life.node) or sorted(pods)
        if there:
            self.world.force_delete(there[index % len(there)], seen=seen)
        if told:
            self.world.settle()

    # If a user forges annotations despite the admission policy, the key of the job names the owner.
    # Without the key, or if another replica has bound the Pod meanwhile, no fact names the owner.
    @precondition(lambda self: not self.world.shared and self.keys_are_whole)
    @rule(index=_INDEX, attempt=st.integers(2, 9))
    def forge(self, index: int, attempt: int) -> None:
        self.forged = True
        pods = sorted(uid for uid, pod in self.world.pods.items() if pod.life.node)
        if pods:
            self.world.forge(pods[index % len(pods)], attempt)

    @rule(index=_INDEX)
    def bind(self, index: int) -> None:
        pods = sorted(self.world.pods)
        if pods:
            self.world.bind(pods[index % len(pods)])

    @rule(index=_INDEX)
    def begin_binding(self, index: int) -> None:
        pods = sorted(self.world.pods)
        if pods:
            self.world.begin_binding(pods[index % len(pods)])

    @rule(index=_INDEX)
    def finish_binding(self, index: int) -> None:
        under_way = sorted(self.world.bindings)
        if under_way:
            self.world.finish_binding(under_way[index % len(under_way)])

    @rule(index=_INDEX, starts=st.booleans())
    def a_kubelet_decides(self, index: int, starts: bool) -> None:
        pods = sorted(uid for uid, pod in self.world.pods.items() if pod.life.node)
        if pods:
            decide = self.world.kubelet_starts if starts else self.world.kubelet_rejects
            decide(pods[index % len(pods)])

    @rule(index=_INDEX, offers=st.booleans())
    def refuse(self, index: int, offers: bool) -> None:
        pods = sorted(self.world.pods)
        if pods:
            self.world.refuse(pods[index % len(pods)], offers=offers)

    @rule(index=_INDEX, user=_OWNER, forbidden=st.booleans())
    def edit(self, index: int, user: int | None, forbidden: bool) -> None:
        pods = sorted(self.world.pods)
        if pods:
            self.world.edit(pods[index % len(pods)], user, forbidden=forbidden)

    # Effects of the ledger

    @precondition(lambda self: self.world.effects)
    @rule(index=_INDEX, fate=st.sampled_from(_FATES))
    def carry_out(self, index: int, fate: str) -> None:
        world = self.world
        effect = world.effects.pop(index % len(world.effects))
        if isinstance(effect, Submit) and fate == "late":  # arrives after all consequences
            world.under_way.append(effect)
        result = LOST if fate in ("lost", "late") else world.do(effect)
        if fate == "undeliverable" and isinstance(effect, Submit) and isinstance(result, Grant):
            world.fail_unanswered(effect)
        world.finish(effect, result if fate == "done" else LOST)

    @precondition(lambda self: self.world.under_way)
    @rule(index=_INDEX)
    def arrive(self, index: int) -> None:
        """Delivers an overdue submission."""
        late = self.world.under_way
        self.world.arrive(late.pop(index % len(late)))

    @rule()
    def start_native_job(self) -> None:
        self.world.start_native_job()

    @rule(times=st.integers(1, 5))
    def somebody_else_is_faster(self, times: int) -> None:
        """Writes to Pods, as a controller or a hostile user does."""
        for _ in range(times):
            self.world.outwrite()
            while self.world.news:
                self.world.hear()

    # News, in order but late

    @precondition(lambda self: self.world.news)
    @rule()
    def hear(self) -> None:
        self.world.hear()

    @rule()
    def ask_slurm(self) -> None:
        self.world.ask()

    @rule()
    def answer(self) -> None:
        self.world.answer()

    @rule()
    def sweep(self) -> None:
        self.world.sweep()

    @rule(seconds=st.sampled_from([0.05, 1.0, 11.0, 40.0]))
    def pass_time(self, seconds: float) -> None:
        self.world.pass_time(seconds)

    @rule(index=_INDEX, ends=st.booleans())
    def all_goes_well(self, index: int, ends: bool) -> None:
        """Runs without losses or delays for a moment. Then a job may end, so that the test also covers
        the Pod of a job that has just ended."""
        self.world.catch_up()
        jobs = self.world.running()
        if ends and jobs:
            self.world.disturb(jobs[index % len(jobs)], "CANCELLED")
            self.world.ask()
            self.world.answer()

    # Slurm

    @rule(told=st.booleans())
    def grants_are_told_at_once(self, told: bool) -> None:
        self.world.tells_grants = told

    @rule()
    def schedule(self) -> None:
        self.world.schedule()

    @rule(limit=st.none() | st.integers(0, 3))
    def limit_jobs(self, limit: int | None) -> None:
        self.world.max_jobs = limit

    @rule(user=_OWNER, limit=st.integers(0, 1))
    def limit_an_owner(self, user: int | None, limit: int) -> None:
        self.world.may_run[user or 0] = limit

    @rule(index=_INDEX)
    def deny(self, index: int) -> None:
        pods = sorted(self.world.pods)
        if pods:
            self.world.denied.add(pods[index % len(pods)])

    @rule(index=_INDEX, base=st.sampled_from(["CANCELLED", "PREEMPTED", "TIMEOUT", "NODE_FAIL"]))
    def end_job(self, index: int, base: str) -> None:
        jobs = sorted(self.world.jobs)
        if jobs:
            self.world.disturb(jobs[index % len(jobs)], base)

    @rule(index=_INDEX)
    def begin_grace(self, index: int) -> None:
        jobs = sorted(self.world.jobs)
        if jobs:
            self.world.begin_grace(jobs[index % len(jobs)])

    @rule()
    def read_jobs(self) -> None:
        self.world.read_jobs()

    @rule(index=_INDEX, resumes=st.booleans())
    def suspend(self, index: int, resumes: bool) -> None:
        """Suspends a job, as the owner does. The owner may resume the job at once, so that no poll sees
        the suspension."""
        jobs = self.world.running()
        if jobs:
            job_id = jobs[index % len(jobs)]
            self.world.suspend(job_id)
            if resumes:
                self.world.resume(job_id)

    @rule()
    def resume_all(self) -> None:
        for job_id in tuple(self.world.jobs):
            self.world.resume(job_id)

    @precondition(lambda self: not self.forged)
    @rule(overwrites=st.booleans())
    def a_job_submit_plugin_overwrites_keys(self, overwrites: bool) -> None:
        self.keys_are_whole = False
        self.world.overwrites_keys = overwrites

    # A job without the key and the name has no known owner.

    @precondition(lambda self: not self.forged)
    @rule(index=_INDEX)
    def overwrite_key(self, index: int) -> None:
        self.keys_are_whole = False
        jobs = sorted(job.id for job in self.world.jobs.values() if job.name != "mine")
        if jobs:
            self.world.overwrite_key(jobs[index % len(jobs)], "by hand")

    @rule(index=_INDEX)
    def rename_job(self, index: int) -> None:
        """Renames a job, as the owner does."""
        jobs = sorted(job.id for job in self.world.jobs.values() if key_of(job) is not None)
        if jobs:
            self.world.change_job(jobs[index % len(jobs)], name="mine")

    @rule(index=_INDEX)
    def shrink_job(self, index: int) -> None:
        jobs = sorted(self.world.jobs)
        if jobs:
            self.world.change_job(jobs[index % len(jobs)], cpus_allocated=0)

    # Crashes

    @rule(arrived=st.lists(st.booleans(), max_size=6))
    def kill_extender(self, arrived: list[bool]) -> None:
        """Kills the extender. Some effects in progress have reached their target, and the other effects
        are lost."""
        world = self.world
        for effect, reached in zip(world.effects, arrived, strict=False):
            if reached:
                world.do(effect)
        self.stop_the_deposed()
        world.restart()

    @precondition(lambda self: self.world.other is None)
    @rule()
    def another_replica_leads(self) -> None:
        self.world.fail_over()
        self.leader = self.world.acting

    @precondition(lambda self: self.world.other is not None)
    @rule()
    def the_other_replica_acts(self) -> None:
        """Gives the turn to the other replica. Both replicas act as leader."""
        self.world.swap()

    @precondition(lambda self: self.world.other is not None)
    @rule()
    def the_deposed_replica_stops(self) -> None:
        self.stop_the_deposed()

    def stop_the_deposed(self) -> None:
        if self.world.other is not None and self.world.acting is not self.leader:
            self.world.swap()
        if self.world.other is not None and self.world.news:
            self.last_of_the_deposed = self.world.news[-1]
        self.world.other = None
        self.world.list_again()

    @rule()
    def slurm_saves(self) -> None:
        self.world.save()

    @precondition(lambda self: self.world.may_be_killed())
    @rule()
    def slurmctld_is_killed(self) -> None:
        self.world.kill_slurmctld()

    @invariant()
    def one_live_job_a_workload(self) -> None:
        self.world.no_two_live_jobs()

    @invariant()
    def the_gate_is_shut_while_a_pod_is_there(self) -> None:
        """If two replicas act as leader, one of them may be wrong. A leader without the news from the
        deposed replica may also be wrong. In both cases, kube-apiserver decides."""
        if self.world.other is None and self.last_of_the_deposed not in self.world.news:
            self.world.nobody_gets_a_node_before_its_pod_is_gone()

    def teardown(self) -> None:
        self.stop_the_deposed()
        calm_down(self.world)
        ends_well(self.world)


TestInterleavings = Interleavings.TestCase
TestInterleavings.settings = settings(
    max_examples=300,
    stateful_step_count=60,
    suppress_health_check=list(HealthCheck),
)
