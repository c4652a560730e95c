"""Tests of the cores of removed Pods with running processes."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from kubernetes_client.in_memory import InMemoryKubernetes
from node_agent import agent as agent_module
from node_agent.agent import Agent
from node_agent.app import local
from node_agent.enforcement import lasting
from node_agent.enforcement.gone_pods import GonePod, gone_pods
from node_agent.enforcement.keeper import Keeper
from node_agent.enforcement.native_jobs import NativeJobs
from node_agent.machine.cpus import Cpus
from node_agent.pods.cgroups import CPUS, EVENTS, PodCgroup, PodCgroups
from node_agent.pods.claims import Claim, Stage
from node_agent.reporting import device_health
from node_agent.reporting.node_condition import Condition
from node_agent.settings import Settings
from tests.eventually import until
from tests.node_agent.node import A, B, C, D
from wellknown.allocation import Allocation

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

STATIC = A.replace("-", "")
RUNS, OTHER = Claim(A, "ml/a", cores=(0,), job=7), Claim(A, "kube-system/a")
ENDED, ADOPTED = RUNS._replace(cores=(), stage=Stage.ENDED), OTHER._replace(job=7, adopted=True)
CORES = Cpus(((0, 4), (1, 5), (2, 6), (3, 7)))
HELD = (
    "processes of a Pod that is gone run on its cores: wait until the processes end, or have an"
    " administrator kill the processes on the Node"
)


def make_pod(folder: Path, uid: str, cpus: str = "", *, populated: bool = True) -> Path:
    """Makes a Pod's cgroup as plain files, because the kernel of the tests has no cpuset controller."""
    place = folder / f"pod{uid}"
    place.mkdir(exist_ok=True)
    files = {EVENTS: f"populated {populated:d}", CPUS: cpus, "memory.max": "max"}
    for name, text in files.items():
        (place / name).write_text(f"{text}\n")
    return place


@pytest.mark.parametrize(
    ("uid", "claims", "removed", "name"),
    [
        (A, [], [], A),  # the agent has just started
        (A, [], [RUNS], "ml/a"),  # a Pod deleted by force
        (A, [ENDED], [], "ml/a"),
        (A, [RUNS], [], ""),
        (A, [RUNS._replace(stage=Stage.LEAVES)], [], ""),  # the kubelet ends the Pod
        (A, [RUNS._replace(stage=Stage.LEAVES, cores=())], [], ""),
        (A, [OTHER], [], ""),
        (A, [], [OTHER], ""),
        (A, [], [ADOPTED], ""),
        (A, [ADOPTED._replace(stage=Stage.ENDED)], [], ""),
        (STATIC, [], [], ""),
        (D, [], [], ""),  # slurmd's Pod
    ],
)
def test_removed_pods_of_jobs_with_processes_are_found(
    tmp_path: Path, uid: str, claims: list[Claim], removed: list[Claim], name: str
) -> None:
    place = make_pod(tmp_path, uid, "0,4")
    pods, gone = ({each.uid: each for each in of} for of in (claims, removed))

    def found(*, populated: bool = True) -> list[GonePod]:
        cgroup = PodCgroup(uid, 1, populated, place)
        return gone_pods(pods, gone, [cgroup], lambda each: each.uid == D)

    assert found() == ([GonePod(uid, name, (0, 4))] if name else [])
    assert found(populated=False) == []
    (place / CPUS).write_text("\n")  # no agent has limited the Pod to cores
    assert found() == []
    (place / CPUS).unlink()
    assert found() == []


class PlainNode:
    """A Node with cgroups as plain files, four cores with two threads each, and no devices."""

    def __init__(self, folder: Path) -> None:
        self.root, self._gres = folder / "cgroup", folder / "gres"
        self._gres.touch()
        self.pods = self.root / "kubepods"
        self.pods.mkdir(parents=True)
        for place in (self.root, self.pods):
            (place / "cgroup.procs").touch()
        (self.pods / EVENTS).touch()
        self.guard: Any = SimpleNamespace(
            known=tuple, change=lambda *_: None, close=lambda *_: None, put_on=lambda *_: ()
        )
        self.kubernetes = InMemoryKubernetes()
        self.kubernetes.put("nodes", {"metadata": {"name": "n1"}, "spec": {}, "status": {}})

    def bind(self, uid: str, cores: str, phase: str = "Pending", sockets: str = "") -> None:
        granted = Allocation(7, "n1", cores=cores, sockets=sockets).annotations()
        metadata = {"uid": uid, "namespace": "ml", "name": uid, "annotations": granted}
        spec = {"nodeName": "n1", "containers": []}
        self.kubernetes.put("pods", {"metadata": metadata, "spec": spec, "status": {"phase": phase}})

    def new_agent(self, cores: Cpus | None = CORES) -> Agent:
        """Returns an agent that does not run yet."""
        cgroups = PodCgroups(self.root)
        keeper = Keeper(self._gres, cgroups, self.guard)
        keeper.cores = cores
        settings = Settings(
            node="n1", gres=self._gres, nri=None, cdi=(), device_plugins=None, end_steps=False
        )
        return Agent(self.kubernetes, cgroups, keeper, settings)

    @asynccontextmanager
    async def agent(self, cores: Cpus | None = CORES) -> AsyncIterator[Agent]:
        agent = self.new_agent(cores)
        running = asyncio.create_task(agent.run())
        try:
            await until(lambda: agent.health.ready)
            yield agent
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def reports(self, expected: Condition) -> None:
        """Waits until the agent reports a condition."""

        async def condition() -> Condition | None:
            return Condition.on(await self.kubernetes.read_node("n1"))

        await until(condition, f"{expected}", holds=lambda found: found == expected)


@pytest.fixture
def plain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PlainNode:
    monkeypatch.setattr(agent_module, "_LOOK_S", 0.05)
    monkeypatch.setattr(device_health, "_LOOK_S", 0.05)
    monkeypatch.setattr(lasting, "_SETTLES_S", 0.0)
    return PlainNode(tmp_path)


@pytest.mark.parametrize("phase", ["", "Succeeded"])
async def test_pod_waits_for_cores_of_a_gone_pods_processes(plain: PlainNode, phase: str) -> None:
    """An earlier agent has limited the removed Pod to CPU 4, a thread of core 0."""
    if phase:
        plain.bind(A, "0", phase)
    make_pod(plain.pods, A, "4")
    for uid, cores in ((B, "0-1"), (C, "1")):
        plain.bind(uid, cores)
        make_pod(plain.pods, uid, populated=False)
    async with plain.agent() as agent:
        await until(lambda: agent.problems == {f"ml/{B}": HELD})
        assert agent.lingering() == (f"ml/{A}" if phase else A,)
        make_pod(plain.pods, A, "4", populated=False)
        await until(lambda: agent.problems == {})
        assert agent.lingering() == ()


async def test_agent_without_a_pod_list_reports_pods_that_have_cores(plain: PlainNode) -> None:
    """An earlier agent has limited Pod A to CPU 4. The next agent does not know yet that kube-apiserver
    has Pod A."""
    plain.bind(A, "0")
    for uid, cpus, populated in ((A, "4", True), (B, "", True), (C, "0", False), (STATIC, "0-7", True)):
        make_pod(plain.pods, uid, cpus, populated=populated)
    assert plain.new_agent().lingering() == (A,)
    async with plain.agent() as agent:
        assert agent.lingering() == ()


async def ask(agent: Agent) -> str:
    transport = httpx.ASGITransport(local(agent))
    async with httpx.AsyncClient(transport=transport, base_url="http://agent") as client:
        return (await client.get("/gate/v1/clear")).text


async def test_gate_waits_if_the_agent_cannot_read_cgroups(plain: PlainNode) -> None:
    agent = plain.new_agent()
    assert await ask(agent) == "ask\n"
    (make_pod(plain.pods, A) / EVENTS).unlink()
    (plain.pods / f"pod{A}" / EVENTS).mkdir()
    assert await ask(agent) == "there unknown\n"


async def test_gate_waits_for_no_pod_before_the_first_kubelet_start(plain: PlainNode) -> None:
    plain.pods.rename(plain.root / "other")
    assert await ask(plain.new_agent()) == "ask\n"


async def test_unreadable_cores_of_a_gone_pod_delay_pods_and_drain_no_node(plain: PlainNode) -> None:
    file = make_pod(plain.pods, A) / CPUS
    file.unlink()
    file.mkdir()
    for uid, cores in ((B, "0"), (C, "")):
        plain.bind(uid, cores)
        make_pod(plain.pods, uid, populated=False)
    async with plain.agent() as agent:
        await until(lambda: agent.problems.keys() == {f"ml/{B}"})
        words = "the cores of Pods that are gone cannot be read: "
        assert agent.problems[f"ml/{B}"].startswith(words)
        assert agent.health.problems()["cores of Pods that are gone"].startswith(words)
        assert "guard" not in agent.health.problems()
        await plain.reports(Condition.of({}, []))
        file.rmdir()
        file.write_text("\n")
        await until(lambda: agent.problems == {})
        assert "cores of Pods that are gone" not in agent.health.problems()


async def test_pod_on_cores_of_a_gone_pod_is_reported_and_keeps_running(plain: PlainNode) -> None:
    make_pod(plain.pods, A, "0,4")
    plain.bind(B, "0-1")
    make_pod(plain.pods, B)
    async with plain.agent() as agent:
        words = f"Pod {A} and Pod ml/{B} have the same CPUs: 0,4"
        await plain.reports(Condition(False, "CoresShared", words))
        assert agent.problems == {}
        make_pod(plain.pods, A, "0,4", populated=False)
        await plain.reports(Condition.of({}, []))


async def test_gone_pod_of_no_job_delays_no_pod(plain: PlainNode) -> None:
    """With NODE_AGENT_KEEP_OTHERS_OFF_CORES, a Pod of no job also has cores in the cgroup."""
    metadata = {"uid": A, "namespace": "kube-system", "name": "a"}
    plain.kubernetes.put("pods", {"metadata": metadata, "spec": {"nodeName": "n1", "containers": []}})
    make_pod(plain.pods, A, "0-7")
    async with plain.agent() as agent:
        plain.kubernetes.remove("pods", "a", "kube-system")
        plain.bind(B, "0")
        place = make_pod(plain.pods, B, populated=False)
        await until(lambda: (place / CPUS).read_text() == "0,4")
        assert f"ml/{B}" not in agent.problems
        assert agent.lingering() == ()


@pytest.mark.parametrize("had_cores", [True, False])
async def test_lost_map_of_cores_prevents_starts_of_pods(
    plain: PlainNode, monkeypatch: pytest.MonkeyPatch, had_cores: bool
) -> None:
    """A CPU went offline before the agent started. With `had_cores`, an earlier agent has limited Pods
    to cores. Otherwise the machine may have had gaps since the boot, and Pods start with memory limits
    alone."""

    def read() -> Cpus:
        raise ValueError("CPUs 0-2,4-7 are online")

    monkeypatch.setattr(Cpus, "read", read)
    for uid, cpus, populated in ((A, "0,4", True), (B, "", False)):
        plain.bind(uid, "0" if uid == A else "1")
        make_pod(plain.pods, uid, cpus if had_cores else "", populated=populated)
    async with plain.agent(None) as agent:
        assert agent.health.problems()["map of cores"] == "CPUs 0-2,4-7 are online"
        if not had_cores:
            await plain.reports(Condition.of({}, []))
            assert agent.problems == {}
            return
        words = "no further Pod can be held to the cores of its job: CPUs 0-2,4-7 are online"
        await plain.reports(Condition(True, "CoresUnknown", words))
        await until(lambda: agent.problems.keys() == {f"ml/{B}"})
        assert agent.problems[f"ml/{B}"].startswith("the CPUs of its cores are not known")
        make_pod(plain.pods, A, populated=False)
        await asyncio.sleep(0.2)  # no cgroup has cores at this time
        await plain.reports(Condition(True, "CoresUnknown", words))
        monkeypatch.setattr(Cpus, "read", lambda: CORES)
        await plain.reports(Condition.of({}, []))
        await until(lambda: agent.problems == {})


async def test_node_that_declares_only_cpus_gives_pods_single_cpus(plain: PlainNode) -> None:
    places = [make_pod(plain.pods, uid, populated=False) for uid in (A, B)]
    async with plain.agent() as agent:
        plain.bind(A, "1-2", sockets="8x1")
        plain.bind(B, "7", sockets="8x1")
        await until(lambda: [(place / CPUS).read_text() for place in places] == ["1,4", "7"])
        assert agent.problems == {}


async def test_node_with_other_cores_than_the_machine_is_drained(plain: PlainNode) -> None:
    """slurmd maps the cores 0 and 4 of this node to the same CPU."""
    place = make_pod(plain.pods, A, populated=False)
    async with plain.agent() as agent:
        plain.bind(A, "0", sockets="1x8")
        await until(lambda: agent.problems.keys() == {f"ml/{A}"})
        assert agent.problems[f"ml/{A}"].startswith("the CPUs of its cores are not known")
        words = (
            "no further Pod can be held to the cores of its job: slurm.conf declares Sockets=1"
            " CoresPerSocket=8, and this machine has 4 cores and 8 CPUs in total: declare the line of"
            " `slurmd -C`, or CPUs=8 without sockets, cores and threads"
        )
        await plain.reports(Condition(True, "CoresUnknown", words))
        assert (place / CPUS).read_text() == "\n"
        plain.kubernetes.remove("pods", A, "ml")
        await plain.reports(Condition.of({}, []))


def _has_found(agent: Agent, steps: int) -> bool:
    return agent.steps.found == steps


async def test_step_is_found_at_once_after_a_start_of_slurmd(
    plain: PlainNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NativeJobs, "look", lambda *_: "")  # runs only every 10 s
    monkeypatch.setattr(agent_module, "_STEPS_S", 0.05)
    plain.bind(A, "0")
    async with plain.agent() as agent:
        for number, name in enumerate(("first", "next")):
            step = plain.root / f"system.slice/{name}_slurmstepd.scope/job_7/step_0"
            step.mkdir(parents=True)
            (step / EVENTS).write_text("populated 1\n")
            await until(partial(_has_found, agent, number + 1))
            step.parent.parent.rename(plain.root / f"{name}-gone")
