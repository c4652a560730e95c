"""Tests of every ending of docs/concepts/endings.md: the reaction of the other system, and the messages
to the user.

Slurm allows preemption, and has accounting. The tests read the ended jobs in sacct.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from deploy.local.accounting import Account, Qos, User, declare
from deploy.local.cluster import Cluster
from deploy.local.errors import ClusterError
from deploy.local.spec import ClusterSpec
from tests.end_to_end.actors import Actors, Manifest, QueuedJob
from tests.eventually import eventually

pytestmark = pytest.mark.real

NODES = ("node-1", "node-2", "node-3", "node-4")
DOOMED = "node-5"
"""Slurm node whose Node is deleted from Kubernetes."""
OVERSTAYED = "node-6"
"""Slurm node with a Pod that stays after the end of the job. The extender drains the node."""
GRACE_S = 20
"""Grace period of deleted Pods. The value differs from every default, and gives the tests time to read
the leaving Pods."""
TIME_TO_LEAVE_S = 60
"""GraceTime, much longer than any test takes."""
CONF = (
    "PreemptType=preempt/qos",
    "PreemptMode=CANCEL",
    "PartitionName=low Nodes=node-[1-4] PriorityTier=1 PreemptMode=CANCEL State=UP",
    f"PartitionName=graceful Nodes=node-[1-4] PreemptMode=CANCEL State=UP GraceTime={TIME_TO_LEAVE_S}",
    "PartitionName=high Nodes=node-[1-4] PriorityTier=10 PreemptMode=OFF State=UP",
)
ALL_QOS = ("normal", "scavenger", "patient", "urgent")
WHO_MAY_WHAT = (
    Qos("scavenger"),
    Qos("patient", grace_s=TIME_TO_LEAVE_S),
    Qos("urgent", preempts=("scavenger", "patient")),
    Account("ml"),
    User("root", ("root",), ALL_QOS),
    User("alice", ("ml",), ALL_QOS),
)
SETTINGS = {
    "SLURM_EXTENDER_QOS_GRACE": "patient",
    "SLURM_EXTENDER_PRIORITY_CLASSES": "by-tier=partition:high,by-qos=qos:urgent,by-qos=partition:low",
}
CPUS = 64
WHOLE = {"cpu": str(CPUS)}


@pytest.fixture(scope="module")
def cluster(slurm_release: str) -> Iterator[Cluster]:
    spec = ClusterSpec(
        nodes=len(NODES) + 2,
        cpus_per_node=CPUS,
        release=slurm_release,
        accounting=True,
        slurm_conf=CONF,
        kill_wait=30,
    )
    with (
        tempfile.TemporaryDirectory(prefix="endings-") as directory,
        Cluster.up(spec, Path(directory)) as running,
    ):
        declare(running, *WHO_MAY_WHAT)
        running.stop("extender")
        running.start("extender", env=SETTINGS)
        yield running


@pytest.fixture(scope="module")
def all_actors(cluster: Cluster) -> Iterator[Actors]:
    actors = Actors(cluster)
    yield actors
    actors.close()


@pytest.fixture(scope="module")
def by_tier(cluster: Cluster) -> None:
    """Makes Slurm preempt by the tiers of partitions instead of the QOS, for all later tests."""
    conf, by_tier = cluster.directory / "slurm" / "etc" / "slurm.conf", "preempt/partition_prio"
    conf.write_text(conf.read_text().replace("preempt/qos", by_tier))
    settings = SETTINGS | {"SLURM_EXTENDER_PREEMPT_TYPE": by_tier}
    for component, environment in {"slurmctld": {}, "extender": settings}.items():
        cluster.stop(component)
        cluster.start(component, env=environment)


def its_time_is_over(cluster: Cluster, job: Job) -> None:
    """Moves the end of a job's time limit to two seconds from now. Slurm checks time limits every half
    minute."""
    version = {"26.05": "v0.0.45", "24.11": "v0.0.42"}[cluster.spec.release]
    httpx.post(
        f"{cluster.slurmrestd_url}/slurm/{version}/job/{job.id}",
        headers={"X-SLURM-USER-TOKEN": cluster.token_file.read_text().strip()},
        json={"end_time": {"set": True, "number": int(time.time()) + 2}},
    ).raise_for_status()


class Job(NamedTuple):
    id: int
    node: str


def place(actors: Actors, name: str, node: str = "node-1", **given: Any) -> Job:
    """Creates a Pod on the node, waits until the Pod is bound, and returns the job. The Pod needs the
    whole grace period to end."""
    annotations = {"required-nodes": node, **given.pop("annotations", {})}
    slow = {"local.slurm-extender.io/stop-after": str(GRACE_S)}
    given = {"own_annotations": slow, "terminationGracePeriodSeconds": GRACE_S, **given}
    actors.create(name, annotations=annotations, **given)
    bound_to, seen = actors.bound(name), actors.see(name)
    assert seen is not None
    return Job(int(seen["metadata"]["annotations"]["slurm-extender.io/job-id"]), bound_to)


class Elsewhere(NamedTuple):
    actors: Actors
    late: Job
    orphan: Job


@pytest.fixture(scope="module")
def elsewhere(cluster: Cluster, by_tier: None) -> Iterator[Elsewhere]:
    """Starts two slow endings in another namespace. Both continue while the other tests run."""
    actors = Actors(cluster, namespace="elsewhere")
    cluster.kubectl("create", "namespace", actors.namespace)
    late = place(actors, "late", OVERSTAYED, annotations={"timeout": "3600"})
    kept = {"metadata": {"finalizers": ["example.com/until-it-was-looked-at"]}}
    actors.kubectl("patch", "pod", actors.full("late"), "-n", actors.namespace, "-p", json.dumps(kept))
    orphan = place(actors, "orphan", DOOMED)
    cluster.kubectl("delete", "node", DOOMED, "--wait=false")
    its_time_is_over(cluster, late)
    yield Elsewhere(actors, late, orphan)
    actors.close()


def native(actors: Actors, node: str, *options: str, runs: str = "sleep 600") -> None:
    """Submits a job of alice for a whole node."""
    sbatch = ("sbatch", "-J", "native", "-w", node, "-n", "1", "-c", str(CPUS), "--mem=1000", *options)
    actors.cluster.run_slurm(*sbatch, "--wrap", runs, user="alice")


def native_is(actors: Actors, state: str) -> Job:
    def see() -> Job | None:
        job = actors.squeue().get("native")
        return Job(job.id, job.node) if job is not None and job.state == state else None

    return eventually(see, f"the native job {state}")  # type: ignore[return-value]


def is_being_evicted(
    actors: Actors, name: str, reason: str, words: str, *, graces: tuple[int, ...] = (GRACE_S,)
) -> None:
    """Asserts that an Event and the Pod's condition name the reason, and that the Pod is deleted with
    one of the grace periods `graces`. If a finalizer keeps the Pod beyond the grace period, the grace
    period becomes 0."""
    eventually(lambda: words in actors.events(name).get(reason, ""), f"{name}: an Event {reason}")
    seen = eventually(lambda: deleted(actors, name), f"{name} deleted")
    assert seen is not None
    assert seen["metadata"]["deletionGracePeriodSeconds"] in graces
    condition = actors.condition(name, "DisruptionTarget")
    assert (condition["status"], condition["reason"]) == ("True", reason)
    assert words in condition["message"]


def deleted(actors: Actors, name: str) -> Manifest | None:
    seen = actors.see(name)
    return seen if seen is not None and "deletionTimestamp" in seen["metadata"] else None


def hurry(actors: Actors, name: str) -> None:
    """Ends the Pod before the end of the grace period."""
    actors.cluster.kubectl("delete", "pod", actors.full(name), "--grace-period=1", "--wait=false")


def slurm_says(
    actors: Actors, job_id: int, state: str, words: str = "", author: str = "", pod: str = "p"
) -> None:
    """Waits until accounting has the state and the comment of a Pod's job."""
    comment = commented(f"default/{actors.full(pod)}", words, author)
    actors.in_the_books(job_id, {"state": state, "comment": comment})


def commented(pod: str, words: str, author: str = "") -> str:
    """Returns the comment of a Pod's job: the author's comment or the name of the Pod, and the words
    about the end."""
    return f"{author or f'Kubernetes Pod {pod}'}; {words or 'scancel evicts it'}"


CANCELLED = "CANCELLED by 0"


# Preemption by QOS, the setting at the start


def test_native_job_of_a_higher_qos_preempts_a_pod(actors: Actors) -> None:
    job = place(actors, "p", annotations={"partition": "low", "qos": "scavenger"}, **WHOLE)
    native(actors, job.node, "-p", "low", "-q", "urgent")
    words = f"Slurm job {job.id} was preempted by Slurm (PREEMPTED)"
    is_being_evicted(actors, "p", "SlurmJobPreempted", words)
    slurm_says(actors, job.id, "PREEMPTED")


def test_preempted_pod_leaves_at_the_start_of_the_grace_time_of_its_qos(actors: Actors) -> None:
    job = place(actors, "p", annotations={"partition": "low", "qos": "patient"}, **WHOLE)
    began = time.monotonic()
    native(actors, job.node, "-p", "low", "-q", "urgent")
    leaves_in_time(actors, job, began)


def test_pod_of_a_higher_qos_preempts_a_native_job(actors: Actors) -> None:
    with priority_class(actors, "by-qos") as spec:
        takes_the_place_of_a_native_job(actors, ("-p", "low", "-q", "scavenger"), **spec)
        assert actors.scontrol("p")["QOS"] == "urgent"


# The Pod ends first


def evict(actors: Actors, name: str) -> None:
    pod = actors.full(name)
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
    path = f"/api/v1/namespaces/{actors.namespace}/pods/{pod}/eviction"
    actors.cluster.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(body))


SOON = {"local.slurm-extender.io/run-for": "1"}
BADLY = SOON | {"local.slurm-extender.io/exit-code": "3"}


@dataclass(frozen=True)
class PodEnds:
    """A way to end a Pod, and the expected words about the end in the job's comment."""

    name: str
    words: str
    end: Callable[[Actors, str], None] | None = None
    """Ends the Pod; None if the Pod ends by itself."""
    own_annotations: Mapping[str, str] | None = None
    comment: str = ""
    """Comment that the author writes onto the Pod; empty for the default comment."""


POD_ENDS = (
    PodEnds("deleted", "Pod deleted", Actors.delete, comment="nightly run"),
    PodEnds("succeeded", "Pod succeeded", own_annotations=SOON),
    PodEnds("failed", "Pod failed: c exited with 3", own_annotations=BADLY),
    PodEnds("evicted", "Pod evicted: EvictionByEvictionAPI: Eviction API: evicting", evict),
)


@pytest.mark.usefixtures("elsewhere")
def test_ended_pods_end_their_jobs_with_the_reason(actors: Actors) -> None:
    jobs = dict[str, Job]()
    for how, node in zip(POD_ENDS, NODES, strict=True):
        annotations = {"comment": how.comment} if how.comment else {}
        own = how.own_annotations
        jobs[how.name] = place(actors, how.name, node, annotations=annotations, own_annotations=own)
    for how in POD_ENDS:
        if how.end is not None:
            how.end(actors, how.name)
    for how in POD_ENDS:
        slurm_says(actors, jobs[how.name].id, CANCELLED, how.words, how.comment, pod=how.name)


def test_deleted_waiting_pod_ends_its_job_with_the_reason(actors: Actors) -> None:
    place(actors, "first", **WHOLE)
    actors.create("p", annotations={"required-nodes": "node-1"})
    job = actors.queued("p")
    actors.delete("p")
    slurm_says(actors, job.id, CANCELLED, "Pod deleted")


# The job ends first


def cancel(actors: Actors, job: Job) -> None:
    actors.cluster.run_slurm("scancel", str(job.id))


def suspend(actors: Actors, job: Job) -> None:
    actors.cluster.run_slurm("scontrol", "suspend", str(job.id))


def fail_its_node(actors: Actors, job: Job) -> None:
    node = f"NodeName={job.node}"
    actors.cluster.run_slurm("scontrol", "update", node, "State=DOWN", "Reason=broken")
    actors.cluster.run_slurm("scontrol", "update", node, "State=RESUME")


def preempt(actors: Actors, job: Job) -> None:
    native(actors, job.node, "-p", "high")


@dataclass(frozen=True)
class JobEnds:
    """A way to end a job, and the expected texts on the Pod and in accounting."""

    end: Callable[[Actors, Job], None]
    reason: str
    words: str
    books: str

    def __str__(self) -> str:
        return self.end.__name__.replace("_", "-")


JOB_ENDS = (
    JobEnds(cancel, "SlurmJobCancelled", "was cancelled in Slurm (CANCELLED)", CANCELLED),
    JobEnds(preempt, "SlurmJobPreempted", "was preempted by Slurm (PREEMPTED)", "PREEMPTED"),
)


@pytest.mark.usefixtures("by_tier")
def test_ended_jobs_evict_their_pods_with_the_reason(actors: Actors) -> None:
    jobs = {
        how: place(actors, str(how), node, annotations={"partition": "low"}, **WHOLE)
        for how, node in zip(JOB_ENDS, NODES, strict=False)
    }
    for how, job in jobs.items():
        how.end(actors, job)
    for how, job in jobs.items():
        is_being_evicted(actors, str(how), how.reason, f"Slurm job {job.id} {how.words}")
    for how, job in jobs.items():
        slurm_says(actors, job.id, how.books, pod=str(how))


def test_node_failure_in_slurm_alone_evicts_no_pod(actors: Actors) -> None:
    """The node fails in Slurm, because slurmd is replaced or an administrator sets the node DOWN. The
    kubelet still works."""
    first = place(actors, "p", **WHOLE)
    before = actors.see("p")
    fail_its_node(actors, first)

    def runs_by_another_job() -> bool:
        job, seen = actors.job_of("p"), actors.see("p")
        if job is None or job.id == first.id or job.state != "RUNNING" or seen is None:
            return False
        return bool(seen["metadata"]["annotations"]["slurm-extender.io/job-id"] == str(job.id))

    eventually(runs_by_another_job, "another job runs, and the Pod has its id", 30)
    after = actors.see("p")
    assert before is not None
    assert after is not None
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert "deletionTimestamp" not in after["metadata"]


def test_node_failure_in_both_systems_evicts_its_pods(actors: Actors) -> None:
    job = place(actors, "p", **WHOLE)
    unreachable = "node.kubernetes.io/unreachable:NoSchedule"
    actors.cluster.kubectl("taint", "node", job.node, unreachable)
    try:
        time.sleep(1.0)  # the extender needs a moment to see the taint
        fail_its_node(actors, job)
        words = f"Slurm job {job.id} lost its node in Slurm (NODE_FAIL)"
        is_being_evicted(actors, "p", "SlurmNodeFailed", words)
    finally:
        actors.cluster.kubectl("taint", "node", job.node, f"{unreachable}-")


def test_suspended_job_evicts_its_pod_and_ends_after_the_pod(actors: Actors) -> None:
    job = place(actors, "p")
    suspend(actors, job)
    words = f"Slurm job {job.id} was suspended in Slurm (SUSPENDED)"
    is_being_evicted(actors, "p", "SlurmJobSuspended", words)
    assert actors.job_of("p")
    hurry(actors, "p")
    slurm_says(actors, job.id, CANCELLED, f"Pod evicted: SlurmJobSuspended: {words}")


@pytest.mark.usefixtures("by_tier")
def test_a_preempted_pod_leaves_at_the_start_of_its_jobs_grace_time(actors: Actors) -> None:
    job = place(actors, "p", annotations={"partition": "graceful"}, **WHOLE)
    began = time.monotonic()
    preempt(actors, job)
    leaves_in_time(actors, job, began)


def leaves_in_time(actors: Actors, job: Job, began: float) -> None:
    """Asserts that the Pod ends with its own grace period within the GraceTime of the job. The native
    job starts before the end of the GraceTime."""
    words = f"Slurm job {job.id} is being preempted: the GraceTime has begun"
    is_being_evicted(actors, "p", "SlurmJobPreempted", words)
    still = actors.job_of("p")
    assert still is not None
    assert still.state == "RUNNING"
    assert native_is(actors, "PENDING")
    hurry(actors, "p")
    assert native_is(actors, "RUNNING").node == job.node
    assert time.monotonic() - began < TIME_TO_LEAVE_S
    slurm_says(actors, job.id, CANCELLED, f"Pod evicted: SlurmJobPreempted: {words}")


# Preemption of a native job by a Pod, by the same rules of Slurm


@contextmanager
def priority_class(actors: Actors, name: str) -> Iterator[Manifest]:
    """Creates a PriorityClass. Yields the fields of a Pod's spec for the class."""
    manifest = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": 1000,
    }
    actors.cluster.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))
    try:
        yield {"priorityClassName": name}
    finally:
        actors.cluster.kubectl("delete", "priorityclass", name, "--wait=false")


def takes_the_place_of_a_native_job(
    actors: Actors, native_options: tuple[str, ...], **given: Any
) -> None:
    native(actors, "node-1", *native_options)
    before = native_is(actors, "RUNNING")
    place(actors, "p", **WHOLE, **given)
    assert actors.node_of("p") == before.node
    actors.in_the_books(before.id, {"state": "PREEMPTED", "comment": ""})


@pytest.mark.usefixtures("by_tier")
def test_pod_of_a_higher_tier_preempts_a_native_job(actors: Actors) -> None:
    takes_the_place_of_a_native_job(actors, ("-p", "low"), annotations={"partition": "high"})


@pytest.mark.usefixtures("by_tier")
def test_pod_starts_after_the_grace_time_of_the_preempted_native_job(actors: Actors) -> None:
    """At the start of the GraceTime, Slurm sends SIGTERM to the steps. The step of this job then needs
    two seconds.

    Each process gets the signal, and a child may get the signal before the shell. The shell continues
    without the child.
    """
    ready, left = (actors.cluster.directory / "slurm" / "tmp" / name for name in ("ready", "left"))
    trap = 'trap "sleep 2; touch /tmp/left; exit" TERM; touch /tmp/ready; while :; do sleep 1; done'
    native(actors, "node-1", "-p", "graceful", runs=f"srun -n 1 sh -c '{trap}'")
    before = native_is(actors, "RUNNING")
    eventually(ready.exists, "the step has set its trap")
    place(actors, "p", annotations={"partition": "high"}, **WHOLE)
    assert left.exists(), what_slurm_did(actors, before)
    actors.in_the_books(before.id, {"state": "PREEMPTED", "comment": ""})


def what_slurm_did(actors: Actors, job: Job) -> str:
    """Returns the lines about a job in the logs of slurmctld and slurmd."""
    logs = [actors.cluster.logs / f"{name}.log" for name in ("slurmctld", f"slurmd-{job.node}")]
    return "".join(
        line
        for log in logs
        for line in log.read_text(errors="replace").splitlines(keepends=True)
        if re.search(rf"\b{job.id}\b", line)
    )


@pytest.mark.usefixtures("by_tier")
@pytest.mark.one_release("The extender alone translates the class")
def test_priority_class_selects_a_partition(actors: Actors) -> None:
    with priority_class(actors, "by-tier") as spec:
        takes_the_place_of_a_native_job(actors, ("-p", "low"), **spec)
        actors.create("q", annotations={"partition": "main"}, **spec)
        actors.bound("q")
        assert actors.scontrol("q")["Partition"] == "main"


# Changes that end no Pod


def run_on(actors: Actors, jobs: Mapping[str, Job], witness: str) -> None:
    """Asserts that the Pods have the same jobs as before, after the extender has polled the jobs several
    times. Waits for each job, because a killed slurmctld may start a job a second time if the first
    start is not saved."""
    actors.create(witness, annotations={"required-nodes": jobs["p-1"].node})
    actors.queued(witness)
    eventually(lambda: actors.condition(witness).get("reason"), "the witness is told why it waits")
    for name, job in jobs.items():
        has_its_job(actors, job, name)


def has_its_job(actors: Actors, job: Job, name: str = "p") -> None:
    def see() -> bool:
        now = actors.job_of(name)
        return now is not None and (now.id, now.state, now.node) == (job.id, "RUNNING", job.node)

    eventually(see, "the same job on the same node", 60)
    seen = actors.see(name)
    assert seen is not None
    assert "deletionTimestamp" not in seen["metadata"]


def requeue(actors: Actors, job: Job) -> None:
    """Asserts that Slurm rejects the requeue, because no placeholder may be requeued."""
    with pytest.raises(ClusterError, match="disabled"):
        actors.cluster.run_slurm("scontrol", "requeue", str(job.id))


def hold(actors: Actors, job: Job) -> None:
    actors.cluster.run_slurm("scontrol", "hold", str(job.id))


def close_its_partition(actors: Actors, job: Job) -> None:
    actors.cluster.run_slurm("scontrol", "update", "PartitionName=low", "State=DOWN")


def drain_its_node(actors: Actors, job: Job) -> None:
    node = f"NodeName={job.node}"
    actors.cluster.run_slurm("scontrol", "update", node, "State=DRAIN", "Reason=service")


def restart_slurmctld(actors: Actors, job: Job) -> None:
    actors.cluster.stop("slurmctld")
    actors.cluster.start("slurmctld")


def kill_slurmctld(actors: Actors, job: Job) -> None:
    """Kills slurmctld after the running job is saved. Without this save, Slurm 24.11 would start the job
    again on the same node. Such a job fails, and the Pod is evicted."""
    saved = actors.cluster.directory / "slurm" / "var" / "state" / "job_state"
    now = time.time()
    actors.cluster.run_slurm("scontrol", "update", f"JobId={job.id}", "Comment=to be written down")
    eventually(lambda: saved.exists() and saved.stat().st_mtime > now, "saved")
    actors.cluster.kill("slurmctld")
    actors.cluster.start("slurmctld")


@pytest.fixture
def all_open(actors: Actors) -> Iterator[None]:
    yield
    actors.cluster.run_slurm("scontrol", "update", "PartitionName=low", "State=UP")


@pytest.mark.usefixtures("all_open")
def test_running_pods_survive_job_changes_and_slurmctld_restarts(actors: Actors) -> None:
    low = {"partition": "low"}
    jobs = {
        f"p-{number}": place(actors, f"p-{number}", node, annotations=low, **WHOLE)
        for number, node in enumerate(NODES, 1)
    }
    requeue(actors, jobs["p-2"])
    hold(actors, jobs["p-3"])
    drain_its_node(actors, jobs["p-4"])
    close_its_partition(actors, jobs["p-1"])
    run_on(actors, jobs, "witness-1")
    actors.cluster.run_slurm("scontrol", "update", "NodeName=node-4", "State=RESUME")
    restart_slurmctld(actors, jobs["p-1"])
    run_on(actors, jobs, "witness-2")
    kill_slurmctld(actors, jobs["p-1"])
    run_on(actors, jobs, "witness-3")


# Messages on waiting Pods


WAITS_FOR = {
    "JobHeldAdmin": ("main", "hold {}", "release {}"),
    "PartitionDown": ("low", "update PartitionName=low State=DOWN", "update PartitionName=low State=UP"),
}


@pytest.mark.usefixtures("all_open")
def test_waiting_pods_show_why_their_jobs_may_not_start(actors: Actors) -> None:
    jobs = dict[str, QueuedJob]()
    for (reason, (partition, *_)), node in zip(WAITS_FOR.items(), NODES, strict=False):
        place(actors, f"first-{node}", node, annotations={"partition": partition}, **WHOLE)
        annotations = {"partition": partition, "required-nodes": node}
        actors.create(reason.lower(), annotations=annotations, **WHOLE)
        jobs[reason] = actors.queued(reason.lower())
    for (reason, (_, stop, _)), node in zip(WAITS_FOR.items(), NODES, strict=False):
        actors.cluster.run_slurm("scontrol", *stop.format(jobs[reason].id).split())
        actors.scancel(f"first-{node}")
        hurry(actors, f"first-{node}")
    for reason, (_, _, go_on) in WAITS_FOR.items():
        name = reason.lower()
        told = partial(actors.condition, name)
        eventually(told, f"told {reason}", holds=lambda seen: seen.get("reason") == reason)  # noqa: B023
        actors.cluster.run_slurm("scontrol", *go_on.format(jobs[reason].id).split())
    for reason in WAITS_FOR:
        actors.bound(reason.lower())


@pytest.mark.one_release(
    "Each kind of cancelled job is tested on each release; this test counts evictions"
)
def test_many_cancelled_jobs_evict_only_their_pods_at_once(actors: Actors) -> None:
    """`make chaos` measures how long the evictions take after 50 of 200 jobs are cancelled. This test
    only checks a limit that even a busy machine keeps."""
    names = [f"p-{number}" for number in range(48)]
    with ThreadPoolExecutor(8) as authors:
        list(authors.map(lambda name: actors.create(name, memory="10Mi"), names))
    eventually(lambda: all(p["spec"].get("nodeName") for p in actors.pods().values()), "bound", 60)
    jobs = actors.squeue()
    doomed = {actors.full(name) for name in names[::4]}
    actors.cluster.run_slurm("scancel", *(str(jobs[actors.job_name(name)].id) for name in names[::4]))

    def left() -> set[str]:
        pods = actors.pods().items()
        return {name for name, pod in pods if "deletionTimestamp" not in pod["metadata"]}

    eventually(lambda: not doomed & left(), "all deleted", 10)
    assert left() == {actors.full(name) for name in names} - doomed


# Slow endings, and endings that change the cluster


def test_a_job_that_reaches_its_time_limit_evicts_its_pod(elsewhere: Elsewhere) -> None:
    actors, job = elsewhere.actors, elsewhere.late
    eventually(lambda: actors.events("late").get("SlurmJobTimeout"), "an Event", 60)
    words = f"Slurm job {job.id} reached its time limit in Slurm (TIMEOUT)"
    is_being_evicted(actors, "late", "SlurmJobTimeout", words, graces=(GRACE_S, 0))
    comment = commented(f"elsewhere/{actors.full('late')}", "")
    actors.in_the_books(job.id, {"state": "TIMEOUT", "comment": comment})


def test_pod_of_a_deleted_node_ends_its_job_with_the_reason(elsewhere: Elsewhere) -> None:
    """kube-controller-manager deletes the Pod about a minute after the deletion of the Pod's Node."""
    elsewhere.actors.gone("orphan", 110)
    words = "Pod evicted: DeletionByPodGC: PodGC: node no longer exists"
    comment = commented(f"elsewhere/{elsewhere.actors.full('orphan')}", words)
    # The test does not compare the state: in sacct, the state names the user that cancelled the job, and
    # Slurm may have lost the name.
    elsewhere.actors.in_the_books(elsewhere.orphan.id, {"comment": comment})


def test_running_pod_gets_its_lost_job_again(actors: Actors) -> None:
    """All files of slurmctld's state are deleted."""
    job = place(actors, "p", **WHOLE)
    actors.cluster.kill("slurmctld")
    for file in (actors.cluster.directory / "slurm" / "var" / "state").iterdir():
        shutil.rmtree(file) if file.is_dir() else file.unlink()
    actors.cluster.start("slurmctld")
    has_its_job(actors, job)
