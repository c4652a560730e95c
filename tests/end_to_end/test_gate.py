"""Tests of the gate: a native job on a Pod's node does not start before the Pod is gone.

Each test uses several nodes at once, each with a Pod and a native job.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import psutil
import pytest

from deploy.local.cluster import Cluster
from deploy.local.errors import ClusterError
from deploy.local.layout import Layout
from deploy.local.spec import DEBIAN_SUITES, ClusterSpec
from tests.deploy_slurm.test_gate_script import gone
from tests.end_to_end.actors import Actors
from tests.end_to_end.state_loss import lose_all_state, waits_pinned
from tests.eventually import eventually

pytestmark = pytest.mark.real

NODES = ("node-1", "node-2", "node-3", "node-4")
UNTOUCHED = "node-5"
"""No placeholder ever runs on this node."""
GRACE = 4
KILL_WAIT = GRACE + 6  # a Pod's grace period must be below KillWait - 5 s
SLOW = {"local.slurm-extender.io/stop-after": str(GRACE)}
HANGS = "local.slurm-extender.io/hangs"
NEVER = {"local.slurm-extender.io/stop-after": "86400"}
KINDS = ("batch", "srun", "salloc")
ALL = "Nodes=node-[1-5]"
SETTINGS = (
    "PreemptType=preempt/partition_prio",
    "PreemptMode=CANCEL",
    f"PartitionName=graceful {ALL} PriorityTier=1 PreemptMode=CANCEL GraceTime=60 State=UP",
    f"PartitionName=urgent {ALL} PriorityTier=9 PreemptMode=OFF State=UP",
    f"PartitionName=first {ALL} PriorityTier=10 PreemptMode=OFF State=UP",
    f"PartitionName=closed {ALL} PreemptMode=OFF State=DOWN",
)
FAR_ON = "FirstJobId=33554432\nMaxJobId=67043328\n"
"""Lines of slurm.conf that put Slurm's next job ids into the range of the placeholders."""
TRIES_S = 5
REFUSED = "slurm-extender: the gate refused job "


@pytest.fixture(scope="module", params=list(DEBIAN_SUITES))
def gated(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Starts a cluster with the gate in the Prolog. Jobs of the partition `urgent` preempt other
    jobs."""
    spec = ClusterSpec(
        nodes=len(NODES) + 1,
        gpus_per_node=0,
        release=request.param,
        gate=True,
        kill_wait=KILL_WAIT,
        slurm_conf=SETTINGS,
    )
    with (
        tempfile.TemporaryDirectory(prefix="gate-") as directory,
        Cluster.up(spec, Path(directory)) as cluster,
    ):
        let_preempt(cluster)
        yield cluster


def let_preempt(cluster: Cluster) -> None:
    cluster.run_slurm("scontrol", "update", "PartitionName=main", "PreemptMode=CANCEL")


@pytest.fixture
def actors(gated: Cluster) -> Iterator[Actors]:
    actors = Actors(gated)
    yield actors
    actors.clean_up()
    actors.close()


class Native:
    """A job of alice for a whole node. The first process of the job records the time of the start."""

    def __init__(
        self, actors: Actors, node: str, kind: str = "batch", partition: str = "main", cpus: int = 8
    ) -> None:
        self.name = f"native-{node}-{cpus}"
        self._actors = actors
        self._file = actors.cluster.directory / "home/alice" / f"{time.monotonic_ns()}"
        asked = (f"-J{self.name}", f"-p{partition}", f"-w{node}", "-n1", f"-c{cpus}", "--mem=100")
        threading.Thread(target=self._run, args=(kind, asked), daemon=True).start()

    def _run(self, kind: str, asked: tuple[str, ...]) -> None:
        says = f"date +%s.%N > {self._file.name}"
        how = ("-o", "/dev/null", "--wrap", says) if kind == "batch" else ("sh", "-c", says)
        with suppress(ClusterError):  # the job may be cancelled
            command = "sbatch" if kind == "batch" else kind
            self._actors.cluster.run_slurm(command, *asked, "-D", "/home/alice", *how, user="alice")

    def state(self) -> str:
        """Returns the state of the job, or "" if Slurm does not have the job."""
        job = self._actors.squeue().get(self.name)
        return job.state if job else ""

    def queued(self) -> Native:
        eventually(self.state, f"{self.name} queued")
        return self

    def waits_in_prolog(self) -> None:
        eventually(lambda: self.state() == "RUNNING", f"the Prolog of {self.name} runs")

    def started(self) -> float | None:
        """Returns the start of the job by the time of day; None before the start."""
        text = self._file.read_text() if self._file.exists() else ""
        return float(text) if text else None

    def starts(self) -> float:
        """Waits for the start of the job, and returns the time of the start."""
        return eventually(self.started, f"{self.name} starts", 60)  # type: ignore[return-value]


class Watched:
    """Records when the containers of each Pod last ran."""

    def __init__(self, actors: Actors) -> None:
        self._actors = actors
        self._seen = dict[str, float]()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(0.02):
            self._look()

    def _look(self) -> None:
        now = time.time()
        for name, seen in self._actors.pods().items():
            if seen["status"]["phase"] not in ("Succeeded", "Failed"):
                self._seen[name] = now

    def last_seen(self, name: str) -> float:
        self._look()
        return self._seen[self._actors.full(name)]

    def close(self) -> None:
        self._over.set()
        self._thread.join()


@pytest.fixture
def watched(actors: Actors) -> Iterator[Watched]:
    watched = Watched(actors)
    yield watched
    watched.close()


def pod_on(node: str) -> str:
    """Returns the name of the Pod for the whole of a node."""
    return f"p-{node}"


def place(
    actors: Actors,
    *nodes: str,
    does: Mapping[str, str] | None = None,
    cpu: str = "8",
    partition: str = "main",
) -> None:
    """Places a Pod on each node, by default for the whole node."""
    for node in nodes:
        annotations = {"required-nodes": node, "partition": partition}
        actors.create(pod_on(node), cpu=cpu, own_annotations=does, annotations=annotations)
    for node in nodes:
        actors.bound(pod_on(node))


def overlap(native: Native, watched: Watched, pod: str, ended: float) -> float:
    """Returns the seconds for which the job and the Pod ran together. Asserts that the Pod used the
    grace period."""
    started = native.starts()
    seen = watched.last_seen(pod)
    assert seen - ended > GRACE - 2
    return max(0.0, seen - started)


def own_prolog_ended(actors: Actors, pod: str) -> None:
    eventually(lambda: actors.scontrol(pod)["Reason"] != "Prolog", "its own Prolog has ended", 8)


def test_native_jobs_wait_for_the_whole_grace_of_a_cancelled_pod(
    actors: Actors, watched: Watched
) -> None:
    """Each node gets a native job of another kind (`KINDS`)."""
    nodes = NODES[: len(KINDS)]
    place(actors, *nodes, does=SLOW)
    natives = [Native(actors, node, kind) for node, kind in zip(nodes, KINDS, strict=True)]
    for native in natives:
        native.queued()
    cancelled = time.time()
    for node in nodes:
        actors.scancel(pod_on(node))
    for node, native in zip(nodes, natives, strict=True):
        assert overlap(native, watched, pod_on(node), cancelled) == 0


@pytest.mark.one_release(
    "Preemption is tested on each release in test_endings, and the gate by cancelled Pods"
)
def test_preempting_native_jobs_wait_for_the_pod(actors: Actors, watched: Watched) -> None:
    nodes = NODES[: len(KINDS)]
    place(actors, *nodes, does=SLOW)
    preempted = time.time()
    natives = [Native(actors, node, kind, "urgent") for node, kind in zip(nodes, KINDS, strict=True)]
    for node, native in zip(nodes, natives, strict=True):
        assert overlap(native, watched, pod_on(node), preempted) == 0
        assert actors.see(pod_on(node)) is None


def deletion_grace(actors: Actors, name: str) -> int | None:
    seen = actors.see(name)
    return seen["metadata"].get("deletionGracePeriodSeconds") if seen else None


@pytest.mark.one_release("kube-apiserver alone decides about the grace period")
def test_long_deletion_grace_does_not_delay_a_native_job(
    actors: Actors,
) -> None:
    """The Pods are deleted with grace periods of 600 s (`kubectl drain --grace-period=600`) and of a
    day. Each Pod would use the whole grace period."""
    graces = {"node-1": 600, "node-2": 86_400}
    place(actors, *graces, does=NEVER)
    for node, seconds in graces.items():
        slowly = (f"--grace-period={seconds}", "--wait=false")
        actors.cluster.kubectl("delete", "pod", actors.full(pod_on(node)), *slowly)
        eventually(partial(leaves_within, actors, pod_on(node), seconds), "it leaves slowly")
    natives = [Native(actors, node).queued() for node in graces]
    for node in graces:
        assert actors.job_of(pod_on(node)) is not None  # the job stays while the Pod exists
        actors.scancel(pod_on(node))
    for node in graces:
        eventually(partial(leaves_within, actors, pod_on(node), GRACE), "it has its own grace")
    for node, native in zip(graces, natives, strict=True):
        actors.gone(pod_on(node), GRACE + 5)
        native.starts()


def leaves_within(actors: Actors, name: str, seconds: int) -> bool:
    return deletion_grace(actors, name) == seconds


def deletes_by_force(actors: Actors, name: str) -> float:
    """Deletes a Pod by force. Returns the time before the deletion. The Pod is gone at once: only the
    kubelet still knows of the containers."""
    began = time.time()
    actors.cluster.kubectl("delete", "pod", actors.full(name), "--force", "--grace-period=0")
    assert actors.see(name) is None
    return began


@pytest.mark.one_release("The extender alone counts the time after the Pod was deleted")
def test_native_job_waits_for_the_grace_of_a_pod_deleted_by_force(actors: Actors) -> None:
    """When the Pods are deleted by force, the extender already evicts the Pod on node-2, but not the Pod
    on node-1."""
    place(actors, "node-1", "node-2", does=SLOW)
    natives = [Native(actors, node).queued() for node in ("node-1", "node-2")]
    actors.scancel("p-node-2")
    eventually(lambda: deletion_grace(actors, "p-node-2") is not None, "it is evicted")
    forced = [deletes_by_force(actors, pod_on(node)) for node in ("node-1", "node-2")]
    held = f"Pod gone: its containers may run for another {GRACE + 5} s; Kubernetes Pod"
    held += f" default/{actors.full('p-node-1')}"
    eventually(lambda: getattr(actors.job_of("p-node-1"), "comment", "") == held, "the reason is told")
    for native, began in zip(natives, forced, strict=True):
        assert native.starts() - began > GRACE + 4
    assert actors.job_of("p-node-1") is None


@pytest.mark.one_release("The extender alone counts the time after the Pod was deleted")
def test_new_leader_holds_the_resources_of_a_pod_deleted_by_force(actors: Actors) -> None:
    place(actors, "node-1")
    native = Native(actors, "node-1").queued()
    forced = deletes_by_force(actors, "p-node-1")
    eventually(
        lambda: "Pod gone" in getattr(actors.job_of("p-node-1"), "comment", ""), "the reason is told"
    )
    actors.cluster.kill("extender")
    actors.cluster.start("extender")
    assert native.starts() - forced > GRACE + 4


def test_job_on_other_cores_starts_during_the_grace_time_of_a_pod(
    actors: Actors, watched: Watched
) -> None:
    place(actors, "node-1", does=SLOW, cpu="4", partition="graceful")
    preempted = time.time()
    heir = Native(actors, "node-1", partition="urgent", cpus=6)
    eventually(lambda: deletion_grace(actors, "p-node-1") is not None, "it is to leave")
    started = Native(actors, "node-1", partition="first", cpus=2).starts()
    assert overlap(heir, watched, "p-node-1", preempted) == 0
    assert started < watched.last_seen("p-node-1") - 1


def test_pod_waits_for_the_cores_of_a_leaving_pod_beside_a_native_job(
    actors: Actors,
) -> None:
    """kube-scheduler counts both Pods, and not the 4 CPUs of the native job. EpilogSlurmctld takes 3 s
    on the second node. So the job of the leaving Pod is still COMPLETING for up to 3 s after the node is
    free."""
    nodes = ("node-1", "node-2")
    for node in nodes:
        sbatch = ("sbatch", f"-Jnative-{node}", "-w", node, "-n1", "-c4", "--mem=100", "-o", "/dev/null")
        actors.cluster.run_slurm(*sbatch, "--wrap", "sleep 60", user="alice")
    place(actors, *nodes, does=SLOW, cpu="4")
    for node in nodes:
        actors.create(f"heir-{node}", cpu="4", annotations={"required-nodes": node})
        actors.queued(f"heir-{node}")
    with configured(actors.cluster, "if [[ ${SLURM_JOB_NODELIST:-} == node-2 ]]; then sleep 3; fi"):
        for node in nodes:
            actors.scancel(pod_on(node))
        left = set(nodes)
        while left:
            there = actors.pods()
            left = {node for node in left if actors.full(pod_on(node)) in there}
            for node in left:
                assert not there[actors.full(f"heir-{node}")]["spec"].get("nodeName")
            time.sleep(0.05)
    for node in nodes:
        assert actors.bound(f"heir-{node}", 30) == node


def is_believed(cluster: Cluster) -> bool:
    """Returns True if slurmctld has run for long enough. The gate does not trust a slurmctld that has
    just started and lists no job."""
    return time.time() - psutil.Process(cluster.pid("slurmctld")).create_time() > 31


def remembered(cluster: Cluster, node: str) -> bool:
    """Returns True if Slurm knows of a placeholder on a node."""
    ids = cluster.run_slurm("squeue", "-h", "-t", "all", "-w", node, "-o", "%A").stdout.split()
    return any(int(one) >= 1 << 25 for one in ids)


def test_no_native_job_starts_beside_a_pod_without_an_extender(actors: Actors, watched: Watched) -> None:
    """On node-1, the native job waits for the next extender, and then for the end of the Pod. On node-2,
    a placeholder starts. On node-3, the Prolog gives up: the native job fails, and the node is drained
    until the Pod is gone. node-5 never had a placeholder: the gate asks Slurm, and the native job
    starts."""
    cluster = actors.cluster
    place(actors, "node-1", "node-3", does=SLOW)
    place(actors, "node-2")
    actors.create("heir", cpu="8", annotations={"required-nodes": "node-2"})
    waits, fails = (Native(actors, node).queued() for node in ("node-1", "node-3"))
    actors.queued("heir")
    assert not remembered(cluster, UNTOUCHED)
    eventually(lambda: is_believed(cluster), "slurmctld is believed")
    cluster.kill("extender")
    try:
        began = cancelled = time.time()
        for node in ("node-1", "node-2"):
            actors.scancel(pod_on(node))
        assert Native(actors, UNTOUCHED).starts() - began < 8
        waits.waits_in_prolog()
        eventually(lambda: actors.scontrol("heir")["JobState"] == "RUNNING", "its Prolog runs")
        own_prolog_ended(actors, "heir")
        with gate_tries(cluster, TRIES_S):
            actors.scancel("p-node-3")
            refused = refusals(actors, "node-3")
        assert refused["node-3"].endswith("no extender answers")
        eventually(lambda: fails.state() == "PENDING", "it waits again")
        assert (waits.started(), fails.started()) == (None, None)
        assert actors.see("p-node-3") is not None
    finally:
        cluster.start("extender")
    assert overlap(waits, watched, "p-node-1", cancelled) == 0
    actors.bound("heir")
    actors.gone("p-node-3", GRACE + 20)
    eventually(lambda: node_is(actors, "node-3").startswith("idle"), "resumed", 20)


def test_no_native_job_starts_beside_a_resumed_job_without_an_extender(
    actors: Actors, watched: Watched
) -> None:
    """The gate sees the Pod's job SUSPENDED and then RUNNING on node-1, and only RUNNING on node-2."""
    cluster, nodes = actors.cluster, ("node-1", "node-2")
    place(actors, *nodes, does=SLOW)
    jobs = [str(actors.scontrol(pod_on(node))["JobId"]) for node in nodes]
    natives = [Native(actors, node).queued() for node in nodes]
    eventually(lambda: is_believed(cluster), "slurmctld is believed")
    suspended = f"squeue --noheader --jobs={jobs[1]} --format=%T | grep -q SUSPENDED"
    waits = f"[[ $1 == --ask || $SLURMD_NODENAME != node-2 ]] || while {suspended}; do sleep 0.1; done"
    cluster.kill("extender")
    try:
        with configured(cluster, waits):
            cluster.run_slurm("scontrol", "suspend", ",".join(jobs))
            for native in natives:
                native.waits_in_prolog()
            time.sleep(1)
            cluster.run_slurm("scontrol", "resume", ",".join(jobs))
            time.sleep(8)
        assert [native.started() for native in natives] == [None, None]
    finally:
        cluster.start("extender")
    resumed = time.time()
    for node, native in zip(nodes, natives, strict=True):
        assert overlap(native, watched, pod_on(node), resumed) == 0


@contextmanager
def restarted(cluster: Cluster, **environment: str) -> Iterator[None]:
    cluster.stop("extender")
    cluster.start("extender", env=environment)
    try:
        yield
    finally:
        cluster.stop("extender")
        cluster.start("extender")


def test_no_native_job_starts_beside_a_pod_after_a_state_loss(actors: Actors) -> None:
    """On node-1, the Pod's recreated job waits for a closed partition. The gate still protects the Pod,
    even without an extender. On node-2, Slurm loses a native job that waits for a Pod. The native job
    does not start, because the node may belong to another job. On node-3, Slurm starts a native job
    before the Pod's recreated job. The gate rejects the native job, and Slurm then gives the node to the
    Pod's job. No administrator acts."""
    cluster = actors.cluster
    cluster.run_slurm("scontrol", "update", "PartitionName=closed", "State=UP")  # until the state loss
    with restarted(cluster, SLURM_EXTENDER_POLL_INTERVAL_S="1"):  # extender notices the loss after 12 s
        place(actors, "node-1", partition="closed")
        place(actors, "node-2", does=SLOW)
        place(actors, "node-3")
        before = uid(actors, "p-node-3")
        # The placeholders' own Prologs must have ended before the state loss. If not, slurmctld forgets
        # a running Prolog, and the gate rejects the placeholder as well as the native job.
        for node in ("node-1", "node-3"):
            own_prolog_ended(actors, pod_on(node))
        lost = Native(actors, "node-2").queued()
        actors.scancel("p-node-2")
        lost.waits_in_prolog()
        with gate_tries(cluster, TRIES_S):
            lose_all_state(actors)
            fast = Native(actors, "node-3")
            refused = refusals(actors, "node-2", "node-3")
        assert refused["node-2"].endswith("Slurm does not have it there any more")
        assert refused["node-3"].endswith(f"Pods default/{actors.full('p-node-3')}")
        assert actors.see("p-node-2") is None
        eventually(lambda: node_is(actors, "node-2").startswith("idle"), "resumed", 20)
        eventually(lambda: runs(actors, "p-node-3"), "the Pod's job runs again", 60)
        assert node_is(actors, "node-3").startswith("allocated")
        assert (fast.state(), fast.started(), lost.started()) == ("PENDING", None, None)
        assert uid(actors, "p-node-3") == before
        eventually(lambda: waits_pinned(actors, "p-node-1", "node-1"), "asked for again", 60)
    eventually(lambda: is_believed(cluster), "slurmctld is believed")
    cluster.kill("extender")
    try:
        native = Native(actors, "node-1", partition="first").queued()
        native.waits_in_prolog()
        time.sleep(5)
        assert native.started() is None
    finally:
        cluster.start("extender")
        let_preempt(cluster)


def refusals(actors: Actors, *nodes: str) -> dict[str, str]:
    """Waits until the gate has refused a job on each node, and returns the reasons of the drained nodes.
    The extender soon resumes a node, so each reason is read while the node is drained."""
    refused = dict[str, str]()

    def look() -> bool:
        for node in nodes:
            state, _, reason = node_is(actors, node).partition("|")
            if state == "drained" and reason.startswith(REFUSED):
                refused[node] = reason
        return len(refused) == len(nodes)

    eventually(look, f"{nodes} drained", 60)
    return refused


def runs(actors: Actors, name: str) -> bool:
    job = actors.job_of(name)
    return job is not None and job.state == "RUNNING"


def uid(actors: Actors, name: str) -> str:
    seen = actors.see(name)
    assert seen is not None
    return str(seen["metadata"]["uid"])


@pytest.mark.one_release("The script alone decides which extender it asks")
def test_missing_replica_does_not_delay_the_job_of_a_pod(actors: Actors) -> None:
    """The gate first asks a host that does not even refuse connections. A native job would wait for two
    seconds, but the job of a Pod does not wait."""
    with gone() as url, gate_asks(actors.cluster, url):
        place(actors, "node-1")
        bound = time.monotonic()
        own_prolog_ended(actors, "p-node-1")
        assert time.monotonic() - bound < 1.5


@contextmanager
def gate_asks(cluster: Cluster, url: str) -> Iterator[None]:
    """Makes the Prolog ask an extender at the URL before the running extender."""
    with configured(cluster, f'SLURM_EXTENDER_HOOKS_URLS="{url} $SLURM_EXTENDER_HOOKS_URLS"'):
        yield


@pytest.mark.one_release(
    "The extender drains the node as in test_nodes; the Prolog that fails is tested on each release"
)
def test_node_is_drained_while_a_pod_outlives_its_job(actors: Actors) -> None:
    """The extender drains the node before the Prolog gives up. If the Prolog gave up first, Slurm would
    drain the node, and an administrator would have to resume the node."""
    place(actors, "node-1", does={HANGS: "true"})
    pod = actors.full("p-node-1")
    reason = f"slurm-extender: Pod default/{pod} is still there though its job has ended"
    try:
        with gate_tries(actors.cluster, KILL_WAIT + 8):
            native = Native(actors, "node-1").queued()
            actors.scancel("p-node-1")
            draining = f"draining|{reason}"
            eventually(lambda: node_is(actors, "node-1") == draining, "drained", KILL_WAIT + 20)
            eventually(lambda: native.state() == "PENDING", "not let through", 40)
        assert node_is(actors, "node-1") == f"drained|{reason}"
        assert native.started() is None
    finally:
        actors.cluster.kubectl("annotate", "pod", pod, f"{HANGS}-")
    eventually(lambda: not node_is(actors, "node-1").startswith("drain"), "resumed")


@contextmanager
def gate_tries(cluster: Cluster, seconds: int) -> Iterator[None]:
    """Sets the time, in seconds, after which the Prolog rejects a job that the gate has not let
    through."""
    with configured(cluster, f"SLURM_EXTENDER_GATE_S={seconds}"):
        yield


@contextmanager
def resumed_unseen(actors: Actors, pod: str) -> Iterator[None]:
    """Suspends the job of a Pod during the block, and resumes the job afterwards. The extender is
    paused, and does not see the change."""
    job = actors.job_of(pod)
    assert job is not None
    actors.cluster.pause("extender")
    try:
        actors.cluster.run_slurm("scontrol", "suspend", str(job.id))
        yield
        actors.cluster.run_slurm("scontrol", "resume", str(job.id))
    finally:
        actors.cluster.resume("extender")


@pytest.mark.parametrize("is_suspended", [False, True], ids=["runs", "suspended in its Prolog"])
def test_a_native_job_with_the_cores_of_a_resumed_job_waits_for_the_pod(
    actors: Actors, watched: Watched, *, is_suspended: bool
) -> None:
    """While the Pod's job is suspended, Slurm gives the cores of the job to a native job. After the
    resume, both jobs are RUNNING. slurmd starts the native job after the Prolog, even while the native
    job is suspended."""
    place(actors, "node-1", does=SLOW)
    native = Native(actors, "node-1").queued()
    with resumed_unseen(actors, "p-node-1"):
        native.waits_in_prolog()
        if is_suspended:
            native_id = actors.squeue()[native.name].id
            actors.cluster.run_slurm("scontrol", "suspend", str(native_id))
    resumed = time.time()
    if is_suspended:  # slurmd may have stopped the process that records the start
        pod = actors.full("p-node-1")
        eventually(lambda: pod not in actors.pods(), "the Pod is evicted")
        with suppress(ClusterError):  # the job may have ended
            actors.cluster.run_slurm("scontrol", "resume", str(native_id))
    assert overlap(native, watched, "p-node-1", resumed) == 0


def test_a_pod_with_the_cores_of_a_resumed_job_waits_for_the_other_pod(actors: Actors) -> None:
    """kube-scheduler has room for both Pods, because kube-scheduler does not count the native job."""
    sbatch = ("sbatch", "-Jnative", "-w", "node-1", "-n1", "-c4", "--mem=100", "-o", "/dev/null")
    actors.cluster.run_slurm(*sbatch, "--wrap", "sleep 60", user="alice")
    place(actors, "node-1", does=SLOW, cpu="4")
    actors.create("heir", cpu="4", annotations={"required-nodes": "node-1"})
    actors.queued("heir")
    with resumed_unseen(actors, "p-node-1"):
        eventually(lambda: actors.scontrol("heir")["JobState"] == "RUNNING", "the heir's job runs")
    assert actors.full("p-node-1") in actors.pods()
    while actors.full("p-node-1") in (there := actors.pods()):
        assert not there[actors.full("heir")]["spec"].get("nodeName")
        time.sleep(0.05)
    assert actors.bound("heir", 30) == "node-1"


@contextmanager
def configured(cluster: Cluster, line: str) -> Iterator[None]:
    """Adds a line to the configuration of the hook and the gate; both run the configuration as bash."""
    configuration = cluster.directory / "slurm/etc/slurm-extender-hook.conf"
    before = configuration.read_text()
    configuration.write_text(f"{before}{line}\n")
    try:
        yield
    finally:
        configuration.write_text(before)


def node_is(actors: Actors, node: str) -> str:
    return actors.cluster.run_slurm("sinfo", "-h", "-n", node, "-o", "%T|%E").stdout.strip()


def test_native_job_with_a_placeholder_id_waits_for_the_pod(
    actors: Actors, watched: Watched, gated: Cluster
) -> None:
    """Must be the last test of the file, because Slurm continues with the high ids. If slurmrestd
    reports Slurm's next job id (not in 24.11), /readyz reports the problem `job ids`."""
    conf = Layout(gated.directory).slurm / "etc/slurm.conf"
    lines = conf.read_text().splitlines(keepends=True)
    conf.write_text("".join(line for line in lines if not line.startswith("MaxJobId=")) + FAR_ON)
    gated.restart("slurmctld")
    with restarted(gated):
        place(actors, "node-1", does=SLOW)
        native = Native(actors, "node-1").queued()
        assert actors.squeue()[native.name].id >= 1 << 25
        cancelled = time.time()
        actors.scancel("p-node-1")
        assert overlap(native, watched, "p-node-1", cancelled) == 0
        reported = "job ids" in actors.ready()[1]["problems"]
        assert reported == (gated.spec.release != "24.11")
