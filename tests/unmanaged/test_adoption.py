"""Tests of adopted Pods' jobs. The rounds request, find, keep and end the jobs in a Slurm in memory."""

from dataclasses import replace
from typing import Any, cast

import pytest

from extender.execution.dispatcher import Dispatcher
from extender.placement.ledger import Ledger
from extender.pod_request.scope import Scope
from extender.pod_request.translation import TranslationConfig
from extender.policy.rules import OPEN, RESTRICTED, Choice, Policy, Rule
from extender.record.config import Context
from extender.record.events import CancelJob, Effect, ReadJob, RecordAdoption, Submit
from extender.telemetry import Telemetry
from extender.unmanaged.adoption import COMMENT, Adopted, AdoptedPod, Adoptions, Stage, adoptable
from kubernetes_client.errors import NotFound
from kubernetes_client.in_memory import InMemoryKubernetes
from slurm_client.errors import InvalidRequest, NeedsOperator
from slurm_client.in_memory import InMemorySlurm, node, partition
from slurm_client.model import HIGHEST_PRIORITY, Job, JobChanges, JobSpec
from slurm_client.protocol import Slurm
from tests.builders import PREFIX, RULES, Manifest, kube_node, unmanaged, view
from wellknown.job_key import PlaceholderKey
from wellknown.names import ADOPTED

ADOPTS = TranslationConfig(adopts=True)
DAEMON = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "controller": True}


def manifest_of_adopted(name: str = "g", node: str | None = "n1", **given: Any) -> Manifest:
    return unmanaged(name, node=node, **given)


class Refusing(InMemorySlurm):
    """Answers every submission with `error`, while `error` is set."""

    error: Exception | None = None

    async def submit(self, spec: JobSpec, job_id: int) -> int:
        if self.error is not None:
            raise self.error
        return await super().submit(spec, job_id)


class World:
    """Nodes n1 and n2 have 8 CPUs in Slurm. Node n3 exists in Kubernetes only."""

    def __init__(self, slurm: Refusing | None = None, **partition_given: Any) -> None:
        self.now = 1000.0
        nodes = [node("n1", cpus=8), node("n2", cpus=8)]
        main = partition("main", ("n1", "n2"), default=True, **partition_given)
        self.slurm = slurm or Refusing(nodes, [main], clock=lambda: self.now)
        self.view = view(*(kube_node(name) for name in ("n1", "n2", "n3")), partitions=[main])
        self.kubernetes = InMemoryKubernetes()
        self.told: list[Stage] = []
        self.policy = OPEN
        self.dispatcher = Dispatcher(
            Ledger(RULES), cast(Slurm, self.slurm), self.kubernetes, Telemetry().placement
        )
        self.lead()

    def lead(self, *found: tuple[PlaceholderKey, Job]) -> None:
        """Starts another leader that has found these jobs in Slurm."""
        self.adoptions = Adoptions(
            RULES, found, lambda record: self.told.append(record.stage), lambda: self.policy
        )

    def add(self, name: str = "g", **given: Any) -> None:
        self.kubernetes.put("pods", manifest_of_adopted(name, **given))

    def adopted_pods(self) -> dict[str, AdoptedPod]:
        found = (adoptable(manifest, ADOPTS) for manifest in self.kubernetes.objects("pods"))
        return {adopted_pod.uid: adopted_pod for adopted_pod in found if adopted_pod is not None}

    async def round(self, seconds: float = 1.0) -> list[Effect]:
        """Runs one round, and returns the effects. Then time passes."""
        self.adoptions.see(self.adopted_pods(), self.view)
        states = await self.slurm.states(self.adoptions.job_ids)
        effects = self.adoptions.round(states, Context(self.now, RULES, self.view))
        for effect in effects:
            self.adoptions.apply(await self.dispatcher.outcome_of(effect), self.now)
        self.now += seconds
        return list(effects)

    async def rounds(self, count: int = 4) -> list[Effect]:
        return [effect for _ in range(count) for effect in await self.round()]

    async def jobs(self) -> dict[int, Job]:
        """Returns the live jobs."""
        states = await self.slurm.all_states()
        read = [await self.slurm.job(job_id) for job_id, state in states.items() if not state.ended]
        return {job.id: job for job in read if job is not None}

    async def job(self) -> Job:
        (job,) = (await self.jobs()).values()
        return job

    async def keyed(self) -> tuple[PlaceholderKey, Job]:
        job = await self.job()
        key = PlaceholderKey.parse(job.admin_comment)
        assert key is not None
        return key, job

    def noted(self, name: str = "g") -> str | None:
        metadata = self.kubernetes.read("pods", name)["metadata"]
        return (metadata.get("annotations") or {}).get(ADOPTED)

    @property
    def stages(self) -> dict[Stage, int]:
        return dict(self.adoptions.tally)


@pytest.fixture
async def world() -> World:
    return World()


@pytest.fixture
async def adopted(world: World) -> World:
    """A world with the Pod g and the Pod's job."""
    world.add()
    await world.rounds()
    return world


def test_adopted_pod_has_the_requests_of_its_manifest() -> None:
    translation = replace(ADOPTS, cluster_name="prod")
    adopted_pod = adoptable(manifest_of_adopted(cpu="1500m", memory="1Gi", gpus=2), translation)
    comment = f"Kubernetes Pod default/g of cluster prod; {COMMENT}"
    asks = AdoptedPod("uid-g", "default", "g", "n1", 2, 1024, (("gpu", 2),), comment=comment)
    assert adopted_pod == asks


@pytest.mark.parametrize(("cpu", "memory", "asks"), [(None, "10Mi", (1, 10)), ("100m", None, (1, 1))])
def test_adopted_pod_asks_for_a_cpu_and_some_memory(
    cpu: str | None, memory: str | None, asks: tuple[int, int]
) -> None:
    """The job requests at least 1 MiB, because Slurm reads 0 memory as the whole memory of the node."""
    adopted_pod = adoptable(manifest_of_adopted(cpu=cpu, memory=memory), ADOPTS)
    assert adopted_pod is not None
    assert (adopted_pod.cpus, adopted_pod.memory_mb) == asks


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({"node": None}, id="not bound"),
        pytest.param({"phase": "Succeeded"}, id="succeeded"),
        pytest.param({"phase": "Failed"}, id="failed"),
        pytest.param({"schedulerName": "slurm-scheduler"}, id="ours"),
        pytest.param({"priority": 2_000_000_000}, id="critical"),
        pytest.param({"cpu": None, "memory": None}, id="requests nothing"),
        pytest.param({"cpu": "1" + "0" * 20}, id="requests what cannot be"),
    ],
)
def test_ineligible_pods_are_not_adopted(given: dict[str, Any]) -> None:
    assert adoptable(manifest_of_adopted(**given), ADOPTS) is None


def test_daemonset_pods_and_pods_without_the_setting_are_not_adopted() -> None:
    manifest = manifest_of_adopted()
    assert adoptable(manifest, TranslationConfig()) is None
    manifest["metadata"]["ownerReferences"] = [DAEMON]
    assert adoptable(manifest, ADOPTS) is None


def test_mirror_pod_is_not_adopted() -> None:
    """The kubelet already runs the static Pod behind a mirror Pod, regardless of Slurm."""
    manifest = manifest_of_adopted(annotations={"kubernetes.io/config.mirror": "x"})
    assert adoptable(manifest, ADOPTS) is None


TEAM = Rule(
    "team",
    namespaces=("default",),
    service_accounts=("trainer",),
    user=Choice(2001),
    fields={"account": Choice("research"), "qos": Choice("low"), "partition": Choice("other")},
    max_priority=100,
    timeout_minutes=60,
)


def submitted(effects: list[Effect]) -> JobSpec:
    """Returns the only submitted job."""
    (job,) = (effect.job for effect in effects if isinstance(effect, Submit))
    return job


async def test_adopted_job_follows_the_policy_rule(world: World) -> None:
    partitions = [partition("main", ("n1",), default=True), partition("other", ("n1",))]
    world.view = view(kube_node("n1"), partitions=partitions)
    world.policy = Policy((TEAM,))
    world.add(serviceAccountName="trainer")
    job = submitted(await world.rounds(1))
    assert (job.user_id, job.group_id, job.account, job.qos) == (2001, 2001, "research", "low")
    assert (job.partition, job.priority, job.time_limit_minutes) == ("other", 100, 60)


@pytest.mark.parametrize(
    ("policy", "priority"),
    [
        (OPEN, HIGHEST_PRIORITY),
        (Policy((replace(TEAM, service_accounts=("*",)),)), 100),
        (Policy((replace(TEAM, service_accounts=("*",), max_priority=None),)), None),
    ],
)
async def test_adopted_job_has_no_priority_above_the_rule(
    world: World, policy: Policy, priority: int | None
) -> None:
    world.policy = policy
    world.add()
    assert submitted(await world.rounds(1)).priority == priority


async def test_adopted_pod_without_a_rule_has_no_job_until_a_rule_gives_a_user(world: World) -> None:
    nameless = replace(TEAM, user=Choice(), service_accounts=("*",))
    for policy in (RESTRICTED, Policy((nameless,))):
        world.policy = policy
        world.add()
        await world.rounds(2)
        assert (world.stages, world.told, await world.jobs()) == (
            {Stage.NO_RULE: 1},
            [Stage.NO_RULE],
            {},
        )
    world.policy = OPEN
    await world.rounds()
    assert world.stages == {Stage.RUNNING: 1}
    world.policy = RESTRICTED
    await world.rounds()
    assert world.stages == {Stage.RUNNING: 1}


def test_annotated_pod_of_another_scheduler_is_adopted() -> None:
    annotations = {PREFIX + "partition": "main"}
    annotated = manifest_of_adopted(schedulerName="volcano", annotations=annotations)
    for translation in (ADOPTS, replace(ADOPTS, take_schedulers=("volcano",))):
        assert adoptable(annotated, translation) is not None


def test_pod_of_slurm_scheduler_out_of_scope_is_adopted() -> None:
    scoped = TranslationConfig(adopts=True, scope=Scope.of(("ml",), ""))
    assert adoptable(manifest_of_adopted(schedulerName="slurm-scheduler"), scoped) is not None


async def test_adopted_pod_gets_a_job_on_its_node_and_the_annotation(world: World) -> None:
    world.add(cpu="3", memory="2Gi", node="n2")
    await world.rounds()
    job = await world.job()
    assert (job.state.running, job.nodes, job.name) == (True, ("n2",), "g@default")
    assert (job.cpus_allocated, job.memory_mb, job.partition) == (3, 2048, "main")
    assert job.time_limit_minutes == 365 * 24 * 60
    assert world.noted() == str(job.id)
    assert world.stages == {Stage.RUNNING: 1}
    assert await world.rounds() == []


@pytest.mark.parametrize("given", [{"node": "n3"}, {"node": "n4"}], ids=["not Slurm's", "not known"])
async def test_pod_on_a_node_outside_slurm_gets_no_job(world: World, given: dict[str, str]) -> None:
    world.add(**given)
    assert await world.rounds() == []
    assert world.stages == {}


async def test_job_has_the_time_limit_of_the_partition() -> None:
    world = World(max_time_minutes=90)
    world.add()
    await world.rounds()
    assert (await world.job()).time_limit_minutes == 90


async def test_first_open_partition_with_the_node_replaces_the_default_partition(
    world: World,
) -> None:
    parts = [partition("a", "n2", default=True), partition("b", "n1", up=False), partition("c", "n1")]
    world.view = view(kube_node("n1"), partitions=parts)
    world.adoptions.see({"u": AdoptedPod("u", "default", "g", "n1", 1, 1)}, world.view)
    (asked,) = world.adoptions.round({}, Context(0.0, RULES, world.view))
    assert isinstance(asked, Submit)
    assert asked.job.partition == "c"


async def test_no_job_is_requested_on_a_contested_slurm_node(world: World) -> None:
    nodes = (kube_node("n1", {"slurm": "gpu"}), kube_node("n2", {"slurm": "gpu"}))
    world.view = view(*nodes, partitions=[partition("a", "gpu", default=True)])
    world.adoptions.see({"u": AdoptedPod("u", "default", "g", "n1", 1, 1)}, world.view)
    assert list(world.adoptions.round({}, Context(0.0, RULES, world.view))) == []


async def test_deleted_pod_ends_its_running_job(adopted: World) -> None:
    adopted.kubernetes.remove("pods", "g")
    (cancelled,) = await adopted.rounds()
    assert isinstance(cancelled, CancelJob)
    assert await adopted.jobs() == {}
    assert adopted.adoptions.job_ids == frozenset()


async def test_deleted_pod_ends_its_waiting_job(world: World) -> None:
    await world.slurm.allocate(JobSpec("native", 8, 1, required_nodes=("n1",)), 7)
    world.add()
    await world.rounds()
    assert world.stages == {Stage.WAITING: 1}
    assert world.noted() is None
    world.kubernetes.remove("pods", "g")
    await world.rounds()
    assert (await world.jobs()).keys() == {7}


async def test_adopted_job_is_first_in_line_and_blocks_no_other_node(
    world: World,
) -> None:
    for number, name in ((7, "native"), (8, "next")):
        await world.slurm.submit(JobSpec(name, 8, 1, required_nodes=("n1",)), number)
        await world.rounds(1)
    world.add(cpu="8")
    await world.rounds()
    await world.slurm.submit(JobSpec("elsewhere", 8, 1), 9)
    await world.rounds()
    assert (await world.jobs())[9].nodes == ("n2",)
    await world.slurm.cancel(7)
    await world.rounds()
    assert world.stages == {Stage.RUNNING: 1}
    assert (await world.jobs())[8].state.pending


async def test_job_cancelled_by_an_administrator_is_not_requested_again(adopted: World) -> None:
    adopted.slurm.admin_cancel((await adopted.job()).id)
    await adopted.rounds(400)  # until Slurm has forgotten the job
    assert await adopted.jobs() == {}
    assert adopted.stages == {Stage.CANCELLED: 1}
    assert adopted.noted() is None
    assert adopted.told == [Stage.RUNNING, Stage.CANCELLED]


async def test_new_leader_ignores_an_earlier_cancellation(adopted: World) -> None:
    """Another leader may have ended the job, under another setting."""
    adopted.slurm.admin_cancel((await adopted.job()).id)
    adopted.lead()
    await adopted.rounds()
    assert adopted.stages == {Stage.RUNNING: 1}


async def test_preempted_job_is_requested_again_after_a_pause(adopted: World) -> None:
    first = await adopted.job()
    adopted.slurm.preempt(first.id)
    await adopted.rounds(8)
    assert await adopted.jobs() == {}
    assert adopted.noted() is None
    await adopted.rounds(8)
    assert adopted.noted() == str((await adopted.job()).id) != str(first.id)


async def test_timed_out_job_is_requested_again_at_once(adopted: World) -> None:
    adopted.slurm.end((await adopted.job()).id, "TIMEOUT")
    (taken_off, asked) = await adopted.round()
    assert isinstance(taken_off, RecordAdoption)
    assert isinstance(asked, Submit)


async def test_impossible_job_is_requested_rarely(world: World) -> None:
    world.add(cpu="12")
    effects = await world.rounds(300)
    assert world.stages == {Stage.REJECTED_BY_SLURM: 1}
    assert 3 <= len(effects) <= 6
    world.kubernetes.remove("pods", "g")
    await world.rounds()
    assert world.stages == {}


async def test_rejected_pod_is_adopted_after_slurm_is_corrected(world: World) -> None:
    world.slurm.error = InvalidRequest("no such association")
    world.add()
    await world.rounds()
    assert world.stages == {Stage.REJECTED_BY_SLURM: 1}
    world.slurm.error = None
    await world.rounds(15)
    assert world.stages == {Stage.RUNNING: 1}


async def test_requests_are_rare_while_slurm_needs_an_operator(world: World) -> None:
    world.slurm.error = NeedsOperator("the token's user may not choose job ids")
    world.add()
    effects = await world.rounds(60)
    assert len(effects) < 10
    world.slurm.error = None
    await world.rounds(16)
    assert world.stages == {Stage.RUNNING: 1}


async def test_a_lost_reply_makes_no_second_job(world: World) -> None:
    world.slurm.lose_reply_of_next("submit")
    world.add()
    await world.rounds()
    assert (await world.job()).state.running
    assert world.stages == {Stage.RUNNING: 1}


async def test_job_lost_by_slurm_is_requested_again(adopted: World) -> None:
    first = await adopted.job()
    adopted.slurm.forget_since(0.0)
    assert await adopted.jobs() == {}
    await adopted.rounds()
    assert (await adopted.job()).id == first.id


async def test_a_second_leader_takes_the_same_job(adopted: World) -> None:
    job = await adopted.job()
    adopted.lead()
    effects = await adopted.rounds()
    assert [type(effect) for effect in effects] == [RecordAdoption, ReadJob, RecordAdoption]
    assert (await adopted.job()).id == job.id


async def test_new_leader_keeps_the_job_of_a_later_try(adopted: World) -> None:
    adopted.slurm.preempt((await adopted.job()).id)
    await adopted.rounds(20)
    key, job = await adopted.keyed()
    assert (key.adopted, key.attempt_try) == (True, 1)
    adopted.now += 400  # Slurm has forgotten the first try
    adopted.lead((key, job))
    assert not [effect for effect in await adopted.rounds() if isinstance(effect, Submit)]
    assert (await adopted.job()).id == job.id


async def test_a_later_try_that_lost_its_key_is_found_by_the_pods_annotation(adopted: World) -> None:
    """Slurm has forgotten the job of the first try, so another job may get the first id."""
    adopted.slurm.preempt((await adopted.job()).id)
    await adopted.rounds(15)
    later = await adopted.job()
    assert adopted.noted() == str(later.id)
    await adopted.slurm.update(later.id, JobChanges(admin_comment="belongs to project 7"))
    adopted.now += 400.0
    adopted.lead()
    await adopted.rounds()
    assert list(await adopted.jobs()) == [later.id]
    assert adopted.stages == {Stage.RUNNING: 1}


async def test_next_leader_keeps_an_adopted_job_without_its_key(adopted: World) -> None:
    job = await adopted.job()
    await adopted.slurm.update(job.id, JobChanges(admin_comment="by a plugin"))
    adopted.lead()
    await adopted.rounds()
    assert await adopted.jobs() == {job.id: replace(job, admin_comment="by a plugin")}
    adopted.kubernetes.remove("pods", "g")
    await adopted.rounds()
    assert await adopted.jobs() == {}


async def test_running_job_is_kept_of_two_jobs(adopted: World) -> None:
    key, job = await adopted.keyed()
    second = PlaceholderKey(key.cluster, "default", "g", "uid-g", 0, 3)
    spec = JobSpec("second", 1, 1, admin_comment=str(second), priority=0)
    await adopted.slurm.submit(spec, second.job_id(RULES.ids))
    waiting = await adopted.slurm.job(second.job_id(RULES.ids))
    assert waiting is not None
    adopted.lead((second, waiting), (key, job))
    await adopted.rounds()
    assert (await adopted.job()).id == job.id


async def test_foreign_job_with_the_id_is_skipped_and_left_alone(world: World) -> None:
    first = PlaceholderKey(RULES.cluster, "default", "g", "uid-g", 0).job_id(RULES.ids)
    await world.slurm.submit(JobSpec("foreign", 1, 1), first)
    world.add()
    await world.rounds()
    jobs = await world.jobs()
    assert world.stages == {Stage.RUNNING: 1}
    assert jobs.pop(first).name == "foreign"
    world.kubernetes.remove("pods", "g")
    await world.rounds()
    assert (await world.jobs()).keys() == {first}


async def test_unverified_job_is_read_before_it_is_cancelled(world: World) -> None:
    first = PlaceholderKey(RULES.cluster, "default", "g", "uid-g", 0).job_id(RULES.ids)
    await world.slurm.submit(JobSpec("foreign", 1, 1), first)
    world.add()
    world.adoptions.see(world.adopted_pods(), world.view)
    world.kubernetes.remove("pods", "g")
    effects = await world.rounds()
    assert [type(effect) for effect in effects] == [ReadJob]
    assert (await world.jobs()).keys() == {first}


async def test_failed_annotation_of_a_pod_is_retried_rarely(world: World) -> None:
    world.add()
    world.kubernetes.outage(NotFound(404, "deaf"))
    effects = await world.rounds(25)
    assert 2 <= sum(isinstance(effect, RecordAdoption) for effect in effects) <= 4
    world.kubernetes.outage(None)
    await world.rounds(12)
    assert world.noted() is not None


def test_adoption_annotation_without_a_number_is_ignored() -> None:
    adopted_pod = adoptable(manifest_of_adopted(annotations={ADOPTED: "soon"}), ADOPTS)
    assert adopted_pod is not None
    assert adopted_pod.noted is None


def test_job_ids_of_attempt_zero_are_unique() -> None:
    keys = {
        PlaceholderKey("c", "d", "g", "u", attempt, n).job_id(RULES.ids)
        for attempt in (0, 1)
        for n in range(4)
    }
    assert len(keys) == 8


def test_record_is_unchanged_in_its_own_stage() -> None:
    adopted_pod = AdoptedPod("u", "default", "g", "n1", 1, 1)
    record = Adopted(adopted_pod, PlaceholderKey("c", "default", "g", "u", 0), 1)
    assert record.at(Stage.WAITING) is record


async def test_cpus_of_running_jobs_are_counted_by_whole_cores(world: World) -> None:
    world.add("a", cpu="3")
    world.add("b", cpu="1")
    world.add("other", node="n2", cpu="2")
    await world.round()
    assert world.adoptions.cpus_on("n1", 1) == 0  # the jobs wait
    await world.rounds()
    assert world.adoptions.cpus_on("n1", 1) == 4
    assert world.adoptions.cpus_on("n1", 2) == 6
    assert world.adoptions.cpus_on("n2", 1) == 2
    assert world.adoptions.cpus_on("n3", 1) == 0
    world.kubernetes.edit("pods", "a", {"spec": manifest_of_adopted("a", cpu="7")["spec"]})
    await world.round()
    assert world.adoptions.cpus_on("n1", 1) == 4  # the job has not changed
    (job,) = [job for job in (await world.jobs()).values() if job.cpus_per_node == 3]
    world.slurm.end(job.id, "PREEMPTED")
    await world.round()
    assert world.adoptions.cpus_on("n1", 1) == 1
    world.kubernetes.remove("pods", "b")
    await world.round()
    assert world.adoptions.cpus_on("n1", 1) == 0


async def test_next_leader_counts_the_cpus_of_found_jobs(world: World) -> None:
    world.add(cpu="3")
    await world.rounds()
    key, job = await world.keyed()
    world.lead((key, job))
    await world.round()
    assert world.adoptions.cpus_on("n1", 1) == 3
