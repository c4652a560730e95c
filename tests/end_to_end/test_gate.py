"""A native job that gets a Pod's node starts when the Pod is gone, and not before."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from deploy.local.cluster import Cluster
from deploy.local.errors import ClusterError
from deploy.local.spec import DEBIAN_SUITES, ClusterSpec
from tests.deploy_slurm.test_gate_script import gone
from tests.end_to_end.actors import Actors
from tests.end_to_end.state_loss import lose_all_state, waits_pinned
from tests.eventually import eventually

pytestmark = pytest.mark.real

GRACE = 4
KILL_WAIT = GRACE + 6  # a Pod may have no more grace than that
SLOW = {"local.slurm-extender.io/stop-after": str(GRACE)}
HANGS = "local.slurm-extender.io/hangs"
NEVER = {"local.slurm-extender.io/stop-after": "86400"}
KINDS = ["batch", "srun", "salloc"]
SETTINGS = (
    "PreemptType=preempt/partition_prio",
    "PreemptMode=CANCEL",
    "MinJobAge=20",
    "PartitionName=graceful Nodes=node-1 PriorityTier=1 PreemptMode=CANCEL GraceTime=60 State=UP",
    "PartitionName=urgent Nodes=node-1 PriorityTier=9 PreemptMode=OFF State=UP",
    "PartitionName=first Nodes=node-1 PriorityTier=10 PreemptMode=OFF State=UP",
)
FAR_ON = ("FirstJobId=33554432", "MaxJobId=67043328")
"""Slurm's own count of ids has come as far as the placeholders'."""
TRIES_S = 5
REFUSED = "slurm-extender: the gate refused job "


@pytest.fixture(scope="module", params=list(DEBIAN_SUITES))
def gated(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A single node, whose Prolog asks. Jobs of the partition `urgent` preempt others."""
    with gated_cluster(request.param) as cluster:
        let_preempt(cluster)
        yield cluster


@contextmanager
def gated_cluster(release: str, *slurm_conf: str) -> Iterator[Cluster]:
    spec = ClusterSpec(
        nodes=1,
        gpus_per_node=0,
        release=release,
        gate=True,
        kill_wait=KILL_WAIT,
        slurm_conf=(*SETTINGS, *slurm_conf),
    )
    with (
        tempfile.TemporaryDirectory(prefix="gate-") as directory,
        Cluster.up(spec, Path(directory)) as cluster,
    ):
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
    """A job of alice's, whose first process says when it starts; for the whole node, as a rule."""

    def __init__(
        self,
        actors: Actors,
        kind: str = "batch",
        partition: str = "main",
        cpus: int = 8,
        node: str = "node-1",
    ) -> None:
        self._cluster = actors.cluster
        self._file = actors.cluster.directory / "home/alice" / f"{time.monotonic_ns()}"
        where = (f"-p{partition}", f"-w{node}")
        asked = (f"-Jnative{cpus % 8 or ''}", *where, "-n1", f"-c{cpus}", "--mem=100")
        threading.Thread(target=self._run, args=(kind, asked), daemon=True).start()

    def _run(self, kind: str, asked: tuple[str, ...]) -> None:
        says = f"date +%s.%N > {self._file.name}"
        how = ("-o", "/dev/null", "--wrap", says) if kind == "batch" else ("sh", "-c", says)
        with suppress(ClusterError):  # it may be cancelled
            command = "sbatch" if kind == "batch" else kind
            self._cluster.run_slurm(command, *asked, "-D", "/home/alice", *how, user="alice")

    def started(self) -> float | None:
        """By the clock on the wall."""
        text = self._file.read_text() if self._file.exists() else ""
        return float(text) if text else None

    def starts(self) -> float:
        """Waits until it has started, and returns when."""
        return eventually(self.started, "the native job starts", 60)  # type: ignore[return-value]


class Watched:
    """When a Pod's containers were last there."""

    def __init__(self, actors: Actors, name: str) -> None:
        self.seen = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(actors, name))
        self._thread.start()

    def _run(self, actors: Actors, name: str) -> None:
        while not self._over.wait(0.02):
            now = time.time()
            seen = actors.see(name)
            if seen is not None and seen["status"]["phase"] not in ("Succeeded", "Failed"):
                self.seen = now

    def last_seen(self) -> float:
        self._over.set()
        self._thread.join()
        return self.seen


def slow_pod(actors: Actors) -> Watched:
    """A Pod on the whole node that uses all of its grace."""
    actors.create("p", cpu="8", own_annotations=SLOW)
    actors.bound("p")
    return Watched(actors, "p")


def overlap(native: Native, watched: Watched, ended: float) -> float:
    """Returns for how many seconds both were there, once both have been. The grace was used."""
    started = native.starts()
    seen = watched.last_seen()
    assert seen - ended > GRACE - 2
    return max(0.0, seen - started)


@pytest.mark.parametrize("kind", KINDS)
def test_after_a_cancelled_pod_a_native_job_waits_for_all_of_its_grace(
    actors: Actors, kind: str
) -> None:
    watched = slow_pod(actors)
    native = Native(actors, kind)
    eventually(lambda: "native" in actors.squeue() or "sh" in actors.squeue(), "native job queued")
    cancelled = time.time()
    actors.scancel("p")
    assert overlap(native, watched, cancelled) == 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.one_release(
    "Preemption is tested on each release in test_endings, and the gate by cancelled Pods"
)
def test_a_native_job_that_preempts_a_pod_waits_for_it_too(actors: Actors, kind: str) -> None:
    watched = slow_pod(actors)
    preempted = time.time()
    native = Native(actors, kind, "urgent")
    assert overlap(native, watched, preempted) == 0
    assert actors.see("p") is None


@pytest.mark.parametrize("release", DEBIAN_SUITES)
def test_a_native_job_with_an_id_of_the_placeholders_waits_too(release: str) -> None:
    """And /readyz tells of it where slurmrestd tells which id is next."""
    with gated_cluster(release, *FAR_ON) as cluster:
        actors = Actors(cluster)
        watched = slow_pod(actors)
        native = Native(actors)
        eventually(lambda: "native" in actors.squeue(), "native job queued")
        assert actors.squeue()["native"].id >= 1 << 25
        cancelled = time.time()
        actors.scancel("p")
        assert overlap(native, watched, cancelled) == 0
        tells = "job ids" in actors.ready()[1]["troubles"]
        assert tells == (release != "24.11")
        actors.close()


def deletion_grace(actors: Actors, name: str) -> int | None:
    seen = actors.see(name)
    return seen["metadata"].get("deletionGracePeriodSeconds") if seen else None


@pytest.mark.parametrize("seconds", [600, 86_400])
@pytest.mark.one_release("kube-apiserver alone decides about the grace period")
def test_after_a_pod_that_somebody_lets_leave_slowly_a_native_job_waits_no_longer(
    actors: Actors, seconds: int
) -> None:
    """`kubectl drain --grace-period=600`, and a day; the Pod would use all of that."""
    actors.create("p", cpu="8", own_annotations=NEVER)
    actors.bound("p")
    slowly = (f"--grace-period={seconds}", "--wait=false")
    actors.cluster.kubectl("delete", "pod", actors.full("p"), *slowly)
    eventually(lambda: deletion_grace(actors, "p") == seconds, "it leaves slowly")
    native = Native(actors)
    eventually(lambda: "native" in actors.squeue(), "native job queued")
    assert actors.job_of("p") is not None  # for as long as the Pod may be there
    actors.scancel("p")
    eventually(lambda: deletion_grace(actors, "p") == GRACE, "it has its own grace")
    actors.gone("p", GRACE + 5)
    native.starts()


def deletes_by_force(actors: Actors, name: str) -> float:
    """Returns when. The Pod is gone at once; that its containers are not is its kubelet's to know."""
    began = time.time()
    actors.cluster.kubectl("delete", "pod", actors.full(name), "--force", "--grace-period=0")
    assert actors.see(name) is None
    return began


@pytest.mark.one_release("The extender alone counts the time after the Pod was deleted")
def test_what_a_pod_deleted_by_force_has_is_nobody_elses_for_all_of_its_grace(actors: Actors) -> None:
    actors.create("p", cpu="8")
    actors.bound("p")
    native = Native(actors)
    eventually(lambda: "native" in actors.squeue(), "native job queued")
    forced = deletes_by_force(actors, "p")
    held = f"Pod gone: its containers may run for another {GRACE + 5} s; Kubernetes Pod"
    held += f" default/{actors.full('p')}"
    eventually(lambda: getattr(actors.job_of("p"), "comment", "") == held, "it is said why")
    assert native.starts() - forced > GRACE + 4
    assert actors.job_of("p") is None


@pytest.mark.one_release("The extender alone counts the time after the Pod was deleted")
def test_a_pod_deleted_by_force_on_its_way_out_lets_nobody_in_before_its_grace_is_over(
    actors: Actors,
) -> None:
    slow_pod(actors).last_seen()
    native = Native(actors)
    eventually(lambda: "native" in actors.squeue(), "native job queued")
    actors.scancel("p")
    eventually(lambda: deletion_grace(actors, "p") is not None, "it is evicted")
    forced = deletes_by_force(actors, "p")
    assert native.starts() - forced > GRACE + 4


@pytest.mark.one_release("The extender alone counts the time after the Pod was deleted")
def test_another_leader_holds_what_a_pod_deleted_by_force_has(actors: Actors) -> None:
    actors.create("p", cpu="8")
    actors.bound("p")
    native = Native(actors)
    eventually(lambda: "native" in actors.squeue(), "native job queued")
    forced = deletes_by_force(actors, "p")
    eventually(lambda: "Pod gone" in getattr(actors.job_of("p"), "comment", ""), "it is said why")
    actors.cluster.kill("extender")
    actors.cluster.start("extender")
    assert native.starts() - forced > GRACE + 4


def test_while_a_pod_has_its_jobs_grace_time_what_gets_other_cores_starts(actors: Actors) -> None:
    actors.create("p", cpu="4", own_annotations=SLOW, annotations={"partition": "graceful"})
    actors.bound("p")
    watched = Watched(actors, "p")
    preempted = time.time()
    heir = Native(actors, partition="urgent", cpus=6)
    eventually(lambda: "deletionTimestamp" in (actors.see("p") or {})["metadata"], "it is to leave")
    started = Native(actors, partition="first", cpus=2).starts()
    assert overlap(heir, watched, preempted) == 0
    assert started < watched.seen - 1


@pytest.mark.parametrize("epilog_s", [0, 3])
def test_a_pod_that_gets_a_leaving_pods_cores_waits_for_it_beside_a_native_job(
    actors: Actors, epilog_s: int
) -> None:
    """kube-scheduler counts both Pods and not the native job: 8 of 8 CPUs, of which 4 are taken. A job
    is COMPLETING until EpilogSlurmctld is over; its node is free long before."""
    sbatch = ("sbatch", "-J", "native", "-n1", "-c4", "--mem=100", "-o", "/dev/null")
    actors.cluster.run_slurm(*sbatch, "--wrap", "sleep 60", user="alice")
    actors.create("first", cpu="4", own_annotations=SLOW)
    actors.bound("first")
    actors.create("second", cpu="4")
    actors.queued("second")
    with configured(actors.cluster, f"sleep {epilog_s}"):
        actors.scancel("first")
        first, second = actors.full("first"), actors.full("second")
        while first in (there := actors.pods()):
            assert not there[second]["spec"].get("nodeName")
            time.sleep(0.05)
    actors.bound("second", 30)


def test_a_killed_extender_lets_nobody_in_before_the_pod_is_gone(actors: Actors) -> None:
    """While it is away the job waits on; the one that comes knows of the Pod."""
    watched = slow_pod(actors)
    native = Native(actors)
    eventually(lambda: "native" in actors.squeue(), "native job queued")
    actors.cluster.kill("extender")
    cancelled = time.time()
    actors.scancel("p")
    eventually(lambda: actors.squeue()["native"].state == "RUNNING", "its Prolog runs")
    time.sleep(1)
    actors.cluster.start("extender")
    assert overlap(native, watched, cancelled) == 0


def test_a_placeholder_starts_while_no_extender_runs(actors: Actors) -> None:
    """Another one has ended there a moment ago, for which a native job would have to wait."""
    actors.create("p", cpu="8")
    actors.bound("p")
    actors.create("q", cpu="8")
    actors.queued("q")
    actors.cluster.kill("extender")
    try:
        actors.scancel("p")
        eventually(lambda: actors.scontrol("q")["JobState"] == "RUNNING", "its Prolog runs")
        eventually(lambda: actors.scontrol("q")["Reason"] != "Prolog", "its Prolog has ended", 8)
    finally:
        actors.cluster.start("extender")
    actors.bound("q")


def test_without_placeholders_native_jobs_start_while_no_extender_runs(gated: Cluster) -> None:
    """Slurm itself is asked, which has forgotten those that ended MinJobAge ago."""
    actors = Actors(gated)
    gated.stop("extender")
    try:
        eventually(lambda: not remembered(gated), "no placeholder is remembered", 90)
        began = time.time()
        assert Native(actors).starts() - began < 8
    finally:
        gated.start("extender")
        actors.clean_up()
        actors.close()


def test_a_pod_whose_job_slurm_lost_is_in_the_way_while_no_extender_runs(closed: Actors) -> None:
    """Its job waits for the node where the Pod runs on: its partition is closed."""
    actors = closed
    actors.create("p", cpu="8")
    node = actors.bound("p")
    eventually(lambda: actors.scontrol("p")["Reason"] != "Prolog", "its own Prolog has ended")
    lose_all_state(actors)
    eventually(lambda: waits_pinned(actors, "p", node), "asked for again", 60)
    time.sleep(30)  # after that, slurmctld is believed in what it does not know
    actors.cluster.kill("extender")
    try:
        native = Native(actors, partition="first")
        eventually(lambda: "native" in actors.squeue(), "native job queued")
        eventually(lambda: actors.squeue()["native"].state == "RUNNING", "its Prolog runs")
        time.sleep(5)
        assert native.started() is None
    finally:
        actors.cluster.start("extender")


@pytest.mark.one_release("The script alone decides which extender it asks")
def test_a_replica_that_is_gone_holds_up_no_pods_job(actors: Actors) -> None:
    """A native job is held up for two seconds by a host that does not even refuse."""
    with gone() as url, gate_asks(actors.cluster, url):
        actors.create("p", cpu="8")
        actors.bound("p")
        bound = time.monotonic()
        eventually(lambda: actors.scontrol("p")["Reason"] != "Prolog", "its Prolog has ended")
        assert time.monotonic() - bound < 1.5


@contextmanager
def gate_asks(cluster: Cluster, url: str) -> Iterator[None]:
    """Before the extender that is there, the Prolog asks another."""
    with configured(cluster, f'SLURM_EXTENDER_HOOKS_URLS="{url} $SLURM_EXTENDER_HOOKS_URLS"'):
        yield


@pytest.mark.one_release(
    "The extender drains the node as in test_nodes; the Prolog that fails is tested on each release"
)
def test_a_pod_that_outstays_its_job_drains_its_node_until_it_is_gone(actors: Actors) -> None:
    """Before the Prolog gives up: Slurm would drain the node then, for a person to resume."""
    actors.create("p", cpu="8", own_annotations={HANGS: "true"})
    pod = actors.full("p")
    actors.bound("p")
    reason = f"slurm-extender: Pod default/{pod} is still there though its job has ended"
    try:
        with gate_tries(actors.cluster, KILL_WAIT + 8):
            native = Native(actors)
            eventually(lambda: "native" in actors.squeue(), "native job queued")
            actors.scancel("p")
            eventually(lambda: node_is(actors) == f"draining|{reason}", "drained", KILL_WAIT + 20)
            eventually(lambda: waits_again(actors), "not let through", 40)
        assert node_is(actors) == f"drained|{reason}"
        assert native.started() is None
    finally:
        actors.cluster.kubectl("annotate", "pod", pod, f"{HANGS}-")
    eventually(lambda: not node_is(actors).startswith("drain"), "resumed")


@contextmanager
def gate_tries(cluster: Cluster, seconds: int) -> Iterator[None]:
    """How long the Prolog tries to let a job through."""
    with configured(cluster, f"SLURM_EXTENDER_GATE_S={seconds}"):
        yield


@contextmanager
def configured(cluster: Cluster, line: str) -> Iterator[None]:
    """One line more in the configuration that the hook and the gate share; both run it as bash."""
    configuration = cluster.directory / "slurm/etc/slurm-extender-hook.conf"
    before = configuration.read_text()
    configuration.write_text(f"{before}{line}\n")
    try:
        yield
    finally:
        configuration.write_text(before)


def waits_again(actors: Actors) -> bool:
    job = actors.squeue().get("native")  # it completes first
    return job is not None and job.state == "PENDING"


def node_is(actors: Actors) -> str:
    return actors.cluster.run_slurm("sinfo", "-h", "-o", "%T|%E").stdout.strip()


def remembered(cluster: Cluster) -> bool:
    ids = cluster.run_slurm("squeue", "-h", "-t", "all", "-o", "%A").stdout.split()
    return any(int(one) >= 1 << 25 for one in ids)


def test_a_job_that_is_not_let_through_fails_and_its_node_is_drained_until_it_is_clear(
    actors: Actors,
) -> None:
    """Nobody answers for longer than the gate tries."""
    watched = slow_pod(actors)
    native = Native(actors)
    eventually(lambda: "native" in actors.squeue(), "native job queued")
    actors.cluster.kill("extender")
    try:
        with gate_tries(actors.cluster, TRIES_S):
            actors.scancel("p")
            eventually(lambda: node_is(actors).startswith(f"drained|{REFUSED}"), "drained", TRIES_S + 20)
        assert node_is(actors).endswith("no extender answers")
        eventually(lambda: waits_again(actors), "it waits again")
        assert native.started() is None
        assert actors.see("p") is not None
    finally:
        actors.cluster.start("extender")
        actors.gone("p", GRACE + 20)
        watched.last_seen()
    eventually(lambda: node_is(actors).startswith("idle"), "resumed", 20)


def test_a_native_job_that_slurm_forgot_while_it_waited_does_not_start(actors: Actors) -> None:
    """Its room may be another's now."""
    watched = slow_pod(actors)
    native = Native(actors)
    eventually(lambda: "native" in actors.squeue(), "native job queued")
    actors.scancel("p")
    eventually(lambda: actors.squeue()["native"].state == "RUNNING", "its Prolog runs")
    lose_all_state(actors)
    forgotten = "Slurm does not have it there any more"
    eventually(lambda: node_is(actors).endswith(forgotten), "refused", KILL_WAIT + 20)
    assert native.started() is None
    assert actors.see("p") is None
    watched.last_seen()
    eventually(lambda: node_is(actors).startswith("idle"), "resumed", 20)


@pytest.fixture
def slow_to_see(actors: Actors) -> Iterator[Actors]:
    """Their extender takes some twelve seconds to be sure that a job is lost."""
    with restarted(actors.cluster, SLURM_EXTENDER_POLL_INTERVAL_S="1"):
        yield actors
    let_preempt(actors.cluster)


@contextmanager
def restarted(cluster: Cluster, **environment: str) -> Iterator[None]:
    cluster.stop("extender")
    cluster.start("extender", env=environment)
    try:
        yield
    finally:
        cluster.stop("extender")
        cluster.start("extender")


def test_a_native_job_that_is_faster_than_one_that_slurm_lost_gives_its_node_back(
    slow_to_see: Actors,
) -> None:
    """Nobody does anything by hand."""
    actors = slow_to_see
    actors.create("p", cpu="8")
    actors.bound("p")
    # A Prolog that slurmctld forgets is refused too, and its words would be seen in place of the Pod's.
    eventually(lambda: actors.scontrol("p")["Reason"] != "Prolog", "its own Prolog has ended")
    before = actors.see("p")
    with gate_tries(actors.cluster, TRIES_S):
        lose_all_state(actors)
        native = Native(actors)
        eventually(lambda: node_is(actors).startswith(f"drained|{REFUSED}"), "refused", 60)
    assert node_is(actors).endswith(f"Pods default/{actors.full('p')}")

    def runs() -> bool:
        job = actors.job_of("p")
        return job is not None and job.state == "RUNNING"

    eventually(runs, "the Pod's job runs again", 60)
    assert node_is(actors).startswith("allocated")
    assert waits_again(actors)
    assert native.started() is None
    after = actors.see("p")
    assert before is not None
    assert after is not None
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
