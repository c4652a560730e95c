"""Tests that the cores of a job override the kubelet's static CPU manager."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from node_agent.enforcement import pod_limits
from node_agent.enforcement.limits import cpus_instead
from node_agent.machine.cpus import Cpus
from node_agent.pods.cgroups import CPUS
from tests.eventually import until
from tests.node_agent.container_runtime import RELEASES, ContainerRuntime
from tests.node_agent.node import A, B
from tests.node_agent.test_containers import begun, running, sandbox
from wellknown import number_list

if TYPE_CHECKING:
    from tests.node_agent.node import Node

OTHERS = "4000-4001"
"""CPUs that no machine of the tests has."""


@pytest.mark.parametrize(
    ("granted", "asked", "instead"),
    [
        ((2, 6), "", ""),  # no request for CPUs
        ((2, 6), "2,6", ""),
        ((2, 6), "2-6", ""),
        ((2, 6), "0-7", ""),  # the Pod's cgroup limits the container
        ((2, 6), "2", "2,6"),
        ((2, 6), "2,5", "2,6"),
        ((2, 6), "0-1", "2,6"),
        ((2, 6), "no list", "2,6"),
        ((), "", ""),
        ((), "0-7", ""),
    ],
)
def test_container_gets_all_cores_of_its_job(granted: tuple[int, ...], asked: str, instead: str) -> None:
    assert cpus_instead(granted, asked) == instead


POD, OTHER = sandbox(A, cores="0"), sandbox(B, cores="0")


def asks(cpus: str, **more: Any) -> dict[str, Any]:
    return {"linux": {"resources": {"cpu": {"cpus": cpus, **more}}}}


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulates the cores in a Pod's cgroup, because the cgroups of the tests have no cpuset
    controller."""
    monkeypatch.setattr(pod_limits, "limits_now", lambda _: {CPUS: own()})


def own() -> str:
    """Returns the CPUs of core 0 of this machine."""
    return number_list.compress(Cpus.read().cores[0])


@pytest.mark.real
@pytest.mark.usefixtures("held")
@pytest.mark.parametrize("release", RELEASES)
async def test_cores_of_the_job_override_the_kubelets_cores(release: str, node: Node) -> None:
    with capture_logs() as logs:
        async with running(node, release) as (runtime, _):
            await begun(node, runtime, POD, OTHER)
            adjust, error = await runtime.creates(POD, asks(OTHERS))
            assert (adjust, error) == (asks(own()), "")
            made, error = await runtime.updates(POD, cpu={"cpus": OTHERS, "shares": {"value": "2"}})
            assert (made["cpu"], error) == ({"cpus": own(), "shares": {"value": "2"}}, "")
            assert (await runtime.creates(OTHER, asks(OTHERS)))[1] == ""
            assert await runtime.stops(POD) == ""
            assert (await runtime.creates(POD, asks(OTHERS)))[1] == ""
    told = [line for line in logs if "CPU manager" in line["event"]]
    assert [line["pod"] for line in told] == [f"ml/{A}", f"ml/{B}", f"ml/{A}"]  # one message per Pod
    assert (told[0]["gave"], told[0]["job_has"]) == (OTHERS, own())


@pytest.mark.real
@pytest.mark.parametrize(
    "given",
    [
        sandbox(A),  # a Pod without a job
        sandbox(A, "gpu:1(IDX:0)"),  # Slurm does not report the cores
    ],
)
async def test_pods_with_unknown_cores_stay_unchanged(given: dict[str, Any], node: Node) -> None:
    async with running(node) as (runtime, _):
        await begun(node, runtime, given)
        adjust, error = await runtime.creates(given, asks(OTHERS))
        assert error == ""
        assert "resources" not in adjust.get("linux", {})
        assert (await runtime.updates(given, cpu={"cpus": OTHERS})) == ({}, "")


@pytest.mark.real
@pytest.mark.usefixtures("held")
async def test_containers_with_enough_cores_stay_unchanged(node: Node) -> None:
    async with running(node) as (runtime, _):
        await begun(node, runtime, POD)
        for cpus in ("", own(), f"{own()},{OTHERS}"):
            assert await runtime.creates(POD, asks(cpus)) == ({}, "")
            assert await runtime.updates(POD, cpu={"cpus": cpus}) == ({}, "")


@pytest.mark.real
@pytest.mark.parametrize("release", RELEASES)
async def test_starting_agent_corrects_the_kubelets_cores(release: str, node: Node) -> None:
    node.nri = node.gres.with_name("nri")
    live = {"state": "CONTAINER_RUNNING"}
    async with ContainerRuntime.start(release, node.nri) as runtime:
        await runtime.has(POD, {"id": "lacks", **live, **asks(OTHERS)})
        await runtime.has(POD, {"id": "ended", "state": "CONTAINER_STOPPED", **asks(OTHERS)})
        await runtime.has(POD, {"id": "has", **live, **asks(own())})
        await runtime.has(sandbox(B), {"id": "of no job", **live, **asks(OTHERS)})
        async with node.agent() as agent:
            await until(lambda: agent.health.ready)
            (update,) = await runtime.synchronized()
    assert update == {"containerId": "lacks", "ignoreFailure": True, **asks(own())}
