"""Tests that a thousand nodes join a pool and are replaced, with real slurmctld, slurmrestd,
kube-apiserver and slurmds. `crowd.py` stands in for the node agents and kubelets."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from deploy.local.cluster import Cluster
from deploy.local.layout import Layout
from deploy.local.spec import ClusterSpec
from loadtest.harness.meters import cpu_s, sums
from tests.end_to_end.actors import Actors
from tests.eventually import eventually
from tests.slurmd_pods.crowd import Crowd
from tests.slurmd_pods.evidence import Evidence, percentile
from tests.slurmd_pods.observer import Observer, states_of_nodes
from tests.slurmd_pods.world import World, pools

pytestmark = [pytest.mark.real, pytest.mark.pools, pytest.mark.alone]

MEMBERS = int(os.environ.get("POOLS_MEMBERS", "1000"))
BUSY = MEMBERS // 50
_API_REQUESTS = "apiserver_request_total"
_COMPONENTS = ("extender", "slurmctld", "slurmrestd", "kube-apiserver")
_GO = "go"


SPEC = ClusterSpec(
    nodes=1,
    dynamic_nodes=MEMBERS,
    kill_wait=10,
    pools=pools(replicas=0),
    slurm_conf=("ReturnToService=2",),
)


@pytest.fixture
def crowded(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """All Nodes exist, but no Node is in the pool yet."""
    crowd, actors = Crowd(cluster, cluster.spec.dynamic_names), Actors(cluster)
    with crowd.running(tmp_path_factory.mktemp("none")):
        eventually(crowd.begun.is_set, "all Nodes are there", 100)
        yield World(actors, crowd)
    actors.close()


def template(image: str, weight: int = 1) -> str:
    slurm, update = {"weight": weight}, {"maxUnavailable": "10%"}
    return pools(image, slurm=slurm, update=update)


class Placements:
    """Creates ordinary Pods one after the other, and deletes each Pod after its binding."""

    def __init__(self, world: World) -> None:
        self._actors = world.actors
        self.took_s: list[float] = []

    @contextmanager
    def coming(self) -> Iterator[None]:
        stop = threading.Event()

        def come() -> None:
            while not stop.wait(0.5):
                name = f"p{len(self.took_s)}"
                began = time.monotonic()
                self._actors.create(name, annotations={"partition": "dynamic"})
                self._actors.bound(name)
                self.took_s.append(time.monotonic() - began)
                self._actors.delete(name)

        with ThreadPoolExecutor(1) as thread:
            comes = thread.submit(come)
            try:
                yield
            finally:
                stop.set()
            comes.result()


def calls(world: World) -> dict[str, float]:
    """Returns the numbers of requests for Nodes to kube-apiserver, and of the extender's calls to
    slurmrestd. In this test, clients other than the extender read and write only the status of a
    Node."""
    pages = [world.cluster.api_server_url + "/metrics", world.cluster.probes["extender"][1]]
    api, own = (world.actors.api.get(page).raise_for_status().text for page in pages)
    nodes = sums(api, _API_REQUESTS, "verb", "subresource", resource="nodes")
    asked = {
        f"{verb} {'/'.join(('nodes', *filter(None, (sub,))))}": n for (verb, sub), n in nodes.items()
    }
    rest = sums(own, "slurm_extender_slurmrestd_calls_total", "call")
    return asked | {f"slurmrestd {call}": n for (call,), n in rest.items()}


@contextmanager
def measured(world: World, about: str, into: dict[str, float | None]) -> Iterator[None]:
    pids = {name: world.cluster.pid(name) for name in _COMPONENTS}
    cpu, asked = {name: cpu_s(pid) for name, pid in pids.items()}, calls(world)
    began = time.monotonic()
    yield
    into[f"{about}_s"] = round(time.monotonic() - began, 1)
    for name, pid in pids.items():
        into[f"{about}_{name}_cpu_s"] = round(cpu_s(pid) - cpu[name], 1)
    for what, count in calls(world).items():
        each = round((count - asked.get(what, 0)) / MEMBERS, 2)
        if each >= 0.01:
            into[f"{about}_calls_a_node, {what}"] = each


def all_open(world: World) -> bool:
    states = states_of_nodes(world.cluster)
    return len(states) == MEMBERS and set(states.values()) <= {"idle", "mixed", "allocated"}


def runs(world: World) -> Mapping[str, str]:
    """Returns the image of the last started slurmd of each Node."""
    return {node: made[-1][0] for node, made in world.fleet.seen.made.items() if made}


@pytest.mark.parametrize("cluster", [SPEC], ids=["thousand"], indirect=True)
@pytest.mark.timeout(1500)
def test_a_thousand_nodes_join_and_are_replaced(crowded: World, evidence: Evidence) -> None:
    world, figures = crowded, dict[str, float | None]()
    evidence.thousand = figures
    names = set(world.fleet.nodes)
    with measured(world, "join", figures):
        world.write(template("v1"))
        eventually(lambda: all_open(world), "all nodes are open", 400)
    roll_out(world, "v2", figures, names)
    observer = Observer(world.cluster, limit=MEMBERS // 10)
    with observer.looking(), measured(world, "told_anew", figures):
        world.write(template("v2", weight=5))
        eventually(lambda: told(world, 5) and all_open(world), "all nodes are told anew", 500)
    assert not observer.beyond, observer.most_out
    assert world.fleet.seen.ended_busy == 0


def told(world: World, weight: int) -> bool:
    lines = world.cluster.run_slurm("sinfo", "-h", "-N", "-p", "dynamic", "-o", "%w").stdout.split()
    return lines == [str(weight)] * MEMBERS


def roll_out(world: World, image: str, figures: dict[str, float | None], names: set[str]) -> None:
    """Rolls out an image. Native jobs run on some nodes until all other nodes have the new image."""
    folder = Layout(world.cluster.directory).slurm / "tmp"
    world.cluster.run_slurm(
        *("sbatch", "--no-requeue", "-p", "dynamic", "-o", "/dev/null", "--mem=100", "--exclusive"),
        f"--array=1-{BUSY}",
        f"--wrap=until [ -e /tmp/{_GO} ]; do sleep 1; done; echo $SLURM_ARRAY_TASK_ID >> /tmp/ended",
    )
    busy = set(eventually(lambda: held(world), "the native jobs run", 60))
    observer, pods = Observer(world.cluster, limit=MEMBERS // 10), Placements(world)
    with observer.looking(), pods.coming(), measured(world, "roll_out", figures):
        world.write(template(image))
        idle = names - busy
        eventually(lambda: {n for n, i in runs(world).items() if i == image} >= idle, "the idle", 500)
        figures["roll_out_idle_s"] = round(time.monotonic() - observer.went[0][0], 1)
        assert {runs(world)[node] for node in busy} == {"v1"}
        (folder / _GO).touch()
        eventually(lambda: set(runs(world).values()) == {image}, "the busy ones", 120)
        eventually(lambda: all_open(world), "all nodes are open", 60)
    assert sorted(map(int, (folder / "ended").read_text().split())) == list(range(1, BUSY + 1))
    first = {node: (when, state) for when, node, state in reversed(observer.went)}
    last_idle = max(first[node] for node in idle & first.keys())
    early = {node: first[node] for node in busy & first.keys() if first[node] < last_idle}
    assert not early, last_idle
    assert not observer.beyond, observer.most_out
    figures["looks"], figures["most_out"] = observer.looks, observer.most_out
    figures["pods_placed"] = len(pods.took_s)
    figures["pods_placed_s_p50"] = percentile(pods.took_s, 50)
    figures["pods_placed_s_p99"] = percentile(pods.took_s, 99)
    assert len(pods.took_s) > 10
    figures["back_s_p50"] = percentile(observer.joined_s(world.fleet.starts([image])), 50)


def held(world: World) -> set[str]:
    """Returns the nodes on which the native jobs run; empty while a native job does not run yet."""
    nodes = world.cluster.run_slurm("squeue", "-h", "-t", "R", "-o", "%N").stdout.split()
    return set(nodes) if len(nodes) == BUSY else set()
