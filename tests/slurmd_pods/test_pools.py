"""Pools of slurmd Pods beside the real systems (docs/pools.md): slurmctld, slurmrestd, slurmd and
kube-apiserver."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from deploy.local.cluster import Cluster
from deploy.local.kubernetes_config import POOLS_NAMESPACE
from deploy.local.spec import ClusterSpec
from tests.end_to_end.actors import Actors, eventually, eventually_not
from tests.end_to_end.agent_account import token_of_a_pod
from tests.end_to_end.test_own_node import Caller
from tests.slurmd_pods.fleet import CRASHES, Fleet
from wellknown.names import POOL, REVISION
from wellknown.slurmd_pod import pod_name

pytestmark = pytest.mark.real

NODES = ["dynamic-1", "dynamic-2", "dynamic-3", "dynamic-4"]
SIZE = "CPUs=8 Sockets=1 CoresPerSocket=8 ThreadsPerCore=1 RealMemory=16000"
STAYS = {"local.slurm-extender.io/start-after": "3600", "local.slurm-extender.io/hangs": "yes"}
"""kwok leaves the Pod to the fleet."""
POWER_SAVING = (
    *("SuspendProgram=/bin/true", "ResumeProgram=/bin/true", "SuspendTime=86400", "SuspendTimeout=3"),
    "ResumeTimeout=60",
    "SlurmctldParameters=conmgr_threads=2,enable_configless,power_save_interval=1",
)


def pools(image: str = "v1", **more: Any) -> str:
    template = {
        "metadata": {"annotations": STAYS},
        "spec": {"containers": [{"name": "slurmd", "image": image}]},
    }
    slurm = {"features": ["dynamic"], "gres": "gpu:h100:4", "conf": SIZE} | more.pop("slurm", {})
    pool = {"name": "dyn", "nodeSelector": {"pool": "yes"}, "slurm": slurm, "template": template}
    return yaml.safe_dump({"controllers": ["127.0.0.1:6817"], "pools": [pool | more]})


class World:
    """A cluster, its people, and a fleet."""

    def __init__(self, actors: Actors, fleet: Fleet) -> None:
        self.actors, self.fleet, self.cluster = actors, fleet, actors.cluster

    def write(self, text: str) -> None:
        self.cluster.pools_file.write_text(text)

    def label(self, *nodes: str) -> None:
        """These Nodes are in the pool, and no others."""
        for node in NODES:
            mark = "pool=yes" if node in nodes else "pool-"
            self.cluster.kubectl("label", "node", node, mark, "--overwrite")

    def nodes(self) -> dict[str, dict[str, Any]]:
        shown = self.cluster.run_slurm("scontrol", "show", "nodes", "--json").stdout
        return {node["name"]: node for node in json.loads(shown)["nodes"]}

    def states(self) -> dict[str, set[str]]:
        """Of the pool's nodes in Slurm."""
        return {name: set(node["state"]) for name, node in self.nodes().items() if name in NODES}

    def open(self) -> set[str]:
        """The nodes that take jobs."""
        closed = {"DRAIN", "DOWN", "NOT_RESPONDING", "POWERED_DOWN", "POWERING_DOWN", "POWERING_UP"}
        return {name for name, states in self.states().items() if not states & closed}

    def images(self) -> dict[str, str]:
        listed = self.cluster.kubectl("get", "pods", "-n", POOLS_NAMESPACE, "-o", "json").stdout
        return {
            pod["spec"]["nodeName"]: pod["spec"]["containers"][0]["image"]
            for pod in json.loads(listed)["items"]
            if "deletionTimestamp" not in pod["metadata"]
        }

    def all_serve(self, *nodes: str, image: str = "v1", within: float = 60.0) -> None:
        expected = dict.fromkeys(nodes, image)
        eventually(lambda: self.images() == expected, f"slurmd Pods of {image}", within)
        eventually(lambda: self.open() == set(nodes), f"{nodes} open", within)

    def sbatch(self, seconds: float, *options: str) -> int:
        done = self.cluster.run_slurm(
            *("sbatch", "--parsable", "-p", "dynamic", "-o", "/dev/null", "--mem=100"),
            *(*options, f"--wrap=sleep {seconds}"),
        )
        return int(done.stdout)

    def job(self, job_id: int) -> dict[str, Any]:
        shown = self.cluster.run_slurm("scontrol", "show", "job", str(job_id), "--json").stdout
        return dict(json.loads(shown)["jobs"][0])

    def runs(self, job_id: int) -> str:
        """Where a job runs."""
        job = self.job(job_id)
        return str(job["nodes"]) if "RUNNING" in job["job_state"] else ""

    def completed(self, job_id: int) -> bool:
        state = self.job(job_id)["job_state"]
        assert not {"FAILED", "NODE_FAIL", "CANCELLED", "REQUEUED"} & set(state), state
        return "COMPLETED" in state

    def metric(self, name: str) -> dict[str, float]:
        text = httpx.get(f"http://127.0.0.1:{self.cluster.ports['extender-metrics']}/metrics").text
        lines = (line.rpartition(" ") for line in text.splitlines() if line.startswith(name))
        return {key: float(value) for key, _, value in lines}


@pytest.fixture(scope="module", params=["26.05", "24.11"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    spec = ClusterSpec(
        release=request.param,
        nodes=1,
        dynamic_nodes=len(NODES),
        kill_wait=10,
        pools=pools(),
        slurm_conf=(*POWER_SAVING, "ReturnToService=2"),
    )
    with (
        tempfile.TemporaryDirectory(prefix="pools-") as directory,
        Cluster.up(spec, Path(directory)) as found,
    ):
        yield found


@pytest.fixture(scope="module")
def whole(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    actors = Actors(cluster)
    with Fleet(cluster, NODES).running(tmp_path_factory.mktemp("tokens")) as fleet:
        yield World(actors, fleet)
    actors.close()


@pytest.fixture
def world(whole: World) -> Iterator[World]:
    """All four Nodes serve, with the first template."""
    whole.actors.begin()
    whole.write(pools())
    whole.label(*NODES)
    whole.all_serve(*NODES)
    yield whole
    whole.actors.clean_up()
    assert whole.fleet.seen.ended_busy == 0


def test_nodes_join_and_run_pods_and_native_jobs_side_by_side(world: World) -> None:
    job = world.sbatch(30, "-w", NODES[0], "-n", "4")
    eventually(lambda: world.runs(job) == NODES[0], "the native job runs")
    annotations = {"partition": "dynamic", "required-nodes": NODES[0]}
    world.actors.create("p", gpus=1, annotations=annotations)
    assert world.actors.bound("p") == NODES[0]
    node = world.nodes()[NODES[0]]
    assert node["instance_type"] == "slurm-extender/dyn"
    assert set(node["features"]) == {"dynamic"}
    labels = json.loads(
        world.cluster.kubectl(
            "get", "pod", "-n", POOLS_NAMESPACE, pod_name(NODES[0]), "-o", "json"
        ).stdout
    )["metadata"]["labels"]
    assert labels[POOL] == "dyn"
    revisions = world.cluster.kubectl(
        "get", "controllerrevisions", "-n", POOLS_NAMESPACE, "-o", "name"
    ).stdout
    assert labels[REVISION] in revisions
    assert "node-1" not in world.images()


def test_a_roll_out_waits_for_jobs_and_goes_on_below_a_pod(world: World) -> None:
    job = world.sbatch(25, "-w", NODES[0])
    eventually(lambda: world.runs(job), "the native job runs")
    world.actors.create("p", annotations={"partition": "dynamic", "required-nodes": NODES[1]})
    world.actors.bound("p")
    world.write(pools("v2"))
    beside = [NODES[1]] if world.cluster.spec.release == "26.05" else []
    idle = [*beside, *NODES[2:]]
    eventually(lambda: {n for n, i in world.images().items() if i == "v2"} >= set(idle), "v2", 60)
    assert world.images()[NODES[0]] == "v1"
    eventually(lambda: world.completed(job), "the job", 40)
    if not beside:
        # 24.11's placeholder is a batch job: its step ends with slurmd
        assert world.images()[NODES[1]] == "v1"
        world.actors.delete("p")
    world.all_serve(*NODES, image="v2")
    if beside:
        assert world.actors.see("p") is not None


def test_what_slurm_is_told_of_nodes_changes(world: World) -> None:
    world.write(pools(slurm={"features": ["dynamic", "fast"], "weight": 7}))
    eventually(
        lambda: all("fast" in world.nodes().get(node, {"features": []})["features"] for node in NODES),
        "the feature on all nodes",
        60,
    )
    world.all_serve(*NODES)
    assert {world.nodes()[node]["weight"] for node in NODES} == {7}


def test_a_template_that_crashes_stops_and_the_old_one_takes_it_back(world: World) -> None:
    world.write(pools(CRASHES, update={"maxUnavailable": 3}))
    stopped = 'slurm_extender_pool_stopped{pool="dyn"}'
    eventually(lambda: world.metric("slurm_extender_pool_stopped").get(stopped) == 1, "stopped")
    time.sleep(3)
    assert list(world.images().values()).count(CRASHES) == 2
    assert "fail; on dynamic-" in world.actors.trouble("roll-outs")
    eventually(lambda: len(world.open()) == 2, "the others are open")
    world.write(pools())
    world.all_serve(*NODES)
    assert world.metric("slurm_extender_pool_stopped")[stopped] == 0


def test_a_drained_node_is_waited_for(world: World) -> None:
    """kubectl drain: it cordons, and asks for the eviction again and again."""
    node = NODES[0]
    job = world.sbatch(8, "-w", node)
    eventually(lambda: world.runs(job), "the native job runs")
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod_name(node), "namespace": POOLS_NAMESPACE},
    }
    path = f"{world.cluster.api_server_url}/api/v1/namespaces/{POOLS_NAMESPACE}/pods/{pod_name(node)}"

    def evict() -> int:
        return world.actors.api.post(f"{path}/eviction", json=eviction).status_code

    world.cluster.kubectl("cordon", node)
    assert evict() == 429
    while not world.completed(job):
        assert world.images().get(node) == "v1"
        assert evict() == 429
        time.sleep(0.5)
    eventually(lambda: evict() == 404, "the slurmd Pod gone")
    assert "DRAIN" in world.states()[node]
    world.cluster.kubectl("uncordon", node)
    world.all_serve(*NODES)


def test_a_smaller_pool_forgets_nodes(world: World) -> None:
    job = world.sbatch(6, "-w", NODES[3])
    eventually(lambda: world.runs(job), "the native job runs")
    world.write(pools(replicas=2))
    eventually(lambda: world.states().keys() == {NODES[0], NODES[3]}, "two nodes are left", 60)
    eventually(lambda: world.completed(job), "the job", 30)
    world.all_serve(NODES[0], NODES[3])
    world.label()
    eventually_not(world.states, "no node is left", 60)
    eventually_not(world.images, "no slurmd Pod is left")


def test_slurms_power_saving_ends_and_makes_pods(world: World) -> None:
    node = NODES[2]
    world.cluster.run_slurm("scontrol", "update", f"NodeName={node}", "State=POWER_DOWN")
    eventually(lambda: node not in world.images(), "its Pod ended")
    eventually(lambda: "POWERED_DOWN" in world.states()[node], "powered down", 30)
    assert node not in world.images()
    job = world.sbatch(1, "-w", node)
    eventually(lambda: world.completed(job), "the job that woke it", 60)
    world.all_serve(*NODES)
    time.sleep(3)  # a second boot would take it down
    assert node in world.open()


def test_a_slurmd_pod_that_somebody_deletes_ends_after_its_jobs_and_comes_back(world: World) -> None:
    node = NODES[1]
    job = world.sbatch(6, "-w", node)
    eventually(lambda: world.runs(job), "the native job runs")
    name = pod_name(node)
    world.cluster.kubectl("delete", "pod", "-n", POOLS_NAMESPACE, name, "--wait=false")
    eventually(lambda: "DRAIN" in world.states()[node], "no more jobs come")
    eventually(lambda: world.completed(job), "the job", 30)
    world.all_serve(*NODES)


def test_a_persons_drain_stays(world: World) -> None:
    node = NODES[3]
    update = (f"NodeName={node}", "State=DRAIN", "Reason=loud disk")
    world.cluster.run_slurm("scontrol", "update", *update)
    world.write(pools("v3"))
    eventually(lambda: world.images() == dict.fromkeys(NODES, "v3"), "v3", 60)
    eventually(lambda: world.open() == set(NODES[:3]), "the others are open")
    assert world.nodes()[node]["reason"].startswith("loud disk")
    world.cluster.run_slurm("scontrol", "update", f"NodeName={node}", "State=UNDRAIN")


def test_an_agent_may_make_the_slurmd_pod_of_its_own_node_and_no_other_pod(world: World) -> None:
    """Of another name it would take the place of another Node's."""
    pods = f"/api/v1/namespaces/{POOLS_NAMESPACE}/pods"
    own: dict[str, Any] = {"name": pod_name("node-1")}
    bare: dict[str, Any] = {"automountServiceAccountToken": False, "serviceAccountName": "default"}
    token = {"serviceAccountToken": {"path": "t"}}
    cases: list[tuple[dict[str, Any], dict[str, Any], str]] = [
        (own, bare, ""),
        ({"name": pod_name(NODES[0])}, bare, "a slurmd Pod is called slurmd- and the name of its Node"),
        (own, bare | {"nodeName": NODES[0]}, "the slurmd Pod of its own Node, and no other Pod"),
        (own, {}, "has no token"),
        (own, bare | {"volumes": [{"name": "t", "projected": {"sources": [token]}}]}, "has no token"),
    ]
    with (
        token_of_a_pod(world.cluster, "node-1") as mine,
        closing(Caller(world.cluster, mine)) as agent,
    ):
        for metadata, more, refused in cases:
            spec = {"nodeName": "node-1", "containers": [{"name": "slurmd", "image": "i"}]} | more
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
            answer = agent.ask("POST", f"{pods}?dryRun=All", pod)
            assert answer.status_code == (403 if refused else 201), (metadata, more, answer.text)
            assert refused in answer.text
        assert agent.ask("DELETE", f"{pods}/{pod_name(NODES[0])}?dryRun=All").status_code == 403


def test_a_leader_that_is_killed_leaves_nothing_undone(world: World) -> None:
    world.write(pools("v4", update={"maxUnavailable": 2}))
    for _ in range(3):
        time.sleep(1.5)
        world.cluster.kill("extender")
        world.cluster.start("extender")
    world.all_serve(*NODES, image="v4")
