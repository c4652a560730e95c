"""The kubelet's static CPU manager gives containers cores of its own choice: those of the job count."""

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
from wellknown.allocation import Allocation

if TYPE_CHECKING:
    from tests.node_agent.node import Node

OTHERS = "4000-4001"
"""CPUs that no machine of the tests has."""


@pytest.mark.parametrize(
    ("asked", "instead"),
    [
        ("", ""),  # nobody asks for any
        ("2,6", ""),
        ("2-6", ""),
        ("0-7", ""),  # more: the Pod's cgroup is above it
        ("2", "2,6"),
        ("2,5", "2,6"),
        ("0-1", "2,6"),
        ("no list", "2,6"),
    ],
)
def test_a_container_gets_the_cores_of_its_pods_job_where_it_would_lack_some(
    asked: str, instead: str
) -> None:
    assert cpus_instead((2, 6), asked) == instead


@pytest.mark.parametrize("asked", ["", "0-7"])
def test_where_no_cores_are_known_the_kubelets_count(asked: str) -> None:
    assert cpus_instead((), asked) == ""


def pod(uid: str, cores: str = "0", gres: str = "") -> dict[str, Any]:
    granted = Allocation(7, "n1", gres, cores).annotations()
    return {"id": uid, "uid": uid, "name": uid, "namespace": "ml", "annotations": granted}


def asks(cpus: str, **more: Any) -> dict[str, Any]:
    return {"linux": {"resources": {"cpu": {"cpus": cpus, **more}}}}


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods' cgroups have their cores: those of the tests have no such controller."""
    monkeypatch.setattr(pod_limits, "limits_now", lambda _: {CPUS: own()})


def own() -> str:
    """The CPUs of core 0 of this machine."""
    return number_list.compress(Cpus.read().cores[0])


@pytest.mark.real
@pytest.mark.usefixtures("held")
@pytest.mark.parametrize("release", RELEASES)
async def test_what_the_kubelet_asks_for_is_overruled_before_a_container_is_made_and_later(
    release: str, one_driver: Node
) -> None:
    with capture_logs() as logs:
        async with running(one_driver, release) as (runtime, _):
            await begun(one_driver, runtime, pod(A), pod(B))
            adjust, error = await runtime.creates(pod(A), asks(OTHERS))
            assert (adjust, error) == (asks(own()), "")
            made, error = await runtime.updates(pod(A), cpu={"cpus": OTHERS, "shares": {"value": "2"}})
            assert (made["cpu"], error) == ({"cpus": own(), "shares": {"value": "2"}}, "")
            assert (await runtime.creates(pod(B), asks(OTHERS)))[1] == ""
            assert await runtime.stops(pod(A)) == ""
            assert (await runtime.creates(pod(A), asks(OTHERS)))[1] == ""
    told = [line for line in logs if "CPU manager" in line["event"]]
    assert [line["pod"] for line in told] == [f"ml/{A}", f"ml/{B}", f"ml/{A}"]  # once a Pod
    assert (told[0]["gave"], told[0]["job_has"]) == (OTHERS, own())


@pytest.mark.real
@pytest.mark.parametrize(
    "given",
    [
        sandbox(A),  # of no job
        sandbox(A, "gpu:1(IDX:0)"),  # Slurm does not say which cores
    ],
)
async def test_pods_whose_cores_are_not_known_are_left_alone(
    given: dict[str, Any], one_driver: Node
) -> None:
    async with running(one_driver) as (runtime, _):
        await begun(one_driver, runtime, given)
        adjust, error = await runtime.creates(given, asks(OTHERS))
        assert error == ""
        assert "resources" not in adjust.get("linux", {})
        assert (await runtime.updates(given, cpu={"cpus": OTHERS})) == ({}, "")


@pytest.mark.real
@pytest.mark.usefixtures("held")
async def test_containers_that_have_enough_are_left_alone(one_driver: Node) -> None:
    async with running(one_driver) as (runtime, _):
        await begun(one_driver, runtime, pod(A))
        for cpus in ("", own(), f"{own()},{OTHERS}"):
            assert await runtime.creates(pod(A), asks(cpus)) == ({}, "")
            assert await runtime.updates(pod(A), cpu={"cpus": cpus}) == ({}, "")


@pytest.mark.real
@pytest.mark.parametrize("release", RELEASES)
async def test_what_the_kubelet_wrote_while_the_agent_was_away_is_put_right(
    release: str, one_driver: Node
) -> None:
    node = one_driver
    node.nri = node.gres.with_name("nri")
    live = {"state": "CONTAINER_RUNNING"}
    async with ContainerRuntime.start(release, node.nri) as runtime:
        await runtime.has(pod(A), {"id": "lacks", **live, **asks(OTHERS)})
        await runtime.has(pod(A), {"id": "ended", "state": "CONTAINER_STOPPED", **asks(OTHERS)})
        await runtime.has(pod(A), {"id": "has", **live, **asks(own())})
        await runtime.has(sandbox(B), {"id": "of no job", **live, **asks(OTHERS)})
        async with node.agent() as agent:
            await until(lambda: agent.health.ready)
            (update,) = await runtime.synchronized()
    assert update == {"containerId": "lacks", "ignoreFailure": True, **asks(own())}
