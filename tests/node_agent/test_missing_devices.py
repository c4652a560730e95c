"""Containers that were made while the agent was away, and lack devices of their Pod's job."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from node_agent.enforcement.keeper import Keeper
from node_agent.machine.devices import Device, Names, Number
from node_agent.machine.numbered import Machine
from node_agent.metrics import registry_of
from node_agent.pods.claims import Claim
from node_agent.runtime.missing_devices import Made, MissingDevices
from tests.eventually import until
from tests.node_agent.container_runtime import RELEASES, ContainerRuntime
from tests.node_agent.node import A, B
from tests.node_agent.test_containers import sandbox

if TYPE_CHECKING:
    from tests.node_agent.node import Node

GPU, FPGA = Device("gpu", "h100", ("/dev/nvidia0",)), Device("fpga", "", ("/dev/fpga7",))
NUMBERS = {GPU: Number(195, 0), FPGA: Number(60, 7)}
UUID, BY_CDI = Names("GPU-a"), Names("GPU-a", "nvidia.com/gpu=0")
CUDA, RUNTIME = "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"


class Known(Keeper):
    """What a keeper knows, without a machine."""

    def __init__(self, name: Names = UUID) -> None:
        self.machine = Machine((GPU, FPGA), lambda device: (frozenset({NUMBERS[device]}), ""))
        self.names = {frozenset(GPU.files): name}


def made(*numbers: Number, gres: str = "gpu", id: str = "1", **variables: str) -> Made:  # noqa: A002
    claim = Claim("u", "ml/p", {gres: (0,)} if gres else {}, of_job=True)
    return Made(claim, id, f"c{id}", variables, frozenset(numbers))


def lacks(keeper: Keeper, *containers: Made) -> str:
    missing = MissingDevices(keeper)
    missing.listed(containers)
    return missing.problems().get("u", "")


@pytest.mark.parametrize(
    ("name", "container", "missing"),
    [
        (UUID, made(NUMBERS[GPU], **{CUDA: "GPU-a", RUNTIME: "GPU-a"}), ""),
        (UUID, made(NUMBERS[GPU], **{CUDA: "GPU-a", RUNTIME: "void"}), ""),  # CDI's specification went
        (BY_CDI, made(NUMBERS[GPU], **{CUDA: "GPU-a", RUNTIME: "GPU-a"}), ""),  # and came
        (BY_CDI, made(**{CUDA: "GPU-a"}), ""),  # its files may be others
        (UUID, made(**{CUDA: "GPU-a"}), "/dev/nvidia0"),
        (UUID, made(NUMBERS[GPU]), CUDA),
        (UUID, made(NUMBERS[GPU], **{CUDA: "GPU-b"}), CUDA),
        (BY_CDI, made(NUMBERS[GPU]), CUDA),
        (UUID, made(NUMBERS[FPGA]), f"/dev/nvidia0, {CUDA}"),
        (UUID, made(*NUMBERS.values(), gres="fpga"), ""),  # a privileged container has all of them
        (UUID, made(gres="fpga"), "/dev/fpga7"),
        (UUID, made(gres=""), ""),  # of a job without devices
        (UUID, made(gres="disk"), ""),  # only counted
        (Names(), made(), ""),  # nobody tells the UUID: it cannot be told
    ],
)
def test_what_a_container_lacks_is_told_and_nothing_else(
    name: Names, container: Made, missing: str
) -> None:
    words = f"container c1 was made without the node agent, and lacks {missing}"
    assert lacks(Known(name), container) == (words if missing else "")


def test_a_part_by_mps_lacks_its_percentage() -> None:
    keeper, name = Known(), "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
    gpu = replace(GPU, shared={"mps": 100})
    keeper.machine = Machine([gpu], lambda _: (frozenset({NUMBERS[GPU]}), ""))
    variables = {CUDA: "GPU-a", RUNTIME: "GPU-a", name: "50"}
    whole = made(NUMBERS[GPU], gres="mps", **variables)
    part = whole._replace(claim=whole.claim._replace(parts={"mps": 20}))
    assert lacks(keeper, part).endswith(f"lacks {name}")
    assert lacks(keeper, part._replace(variables=variables | {name: "20"})) == ""


def test_each_container_of_a_pod_is_named() -> None:
    told = lacks(Known(), made(gres="fpga", id="1"), made(gres="fpga", id="2"))
    assert "container c1 was" in told
    assert "container c2 was" in told


def test_it_is_told_once_the_devices_are_known_and_while_they_are_not_known_for_a_moment() -> None:
    keeper = Known(Names())
    missing = MissingDevices(keeper)
    missing.listed([made()])
    assert missing.problems() == {}
    keeper.names = {frozenset(GPU.files): UUID}
    assert CUDA in missing.problems()["u"]
    keeper.names = {}
    assert CUDA in missing.problems()["u"]


def test_it_is_over_where_a_list_of_devices_was_wrong() -> None:
    keeper = Known(Names("GPU-b"))
    missing = MissingDevices(keeper)
    missing.listed([made(NUMBERS[GPU], **{CUDA: "GPU-a"})])
    assert missing.problems()
    keeper.names = {frozenset(GPU.files): UUID}
    assert missing.problems() == {}


def test_a_container_that_once_had_all_is_looked_at_no_more() -> None:
    keeper = Known()
    missing = MissingDevices(keeper)
    missing.listed([made(NUMBERS[GPU], **{CUDA: "GPU-a"})])
    assert missing.problems() == {}
    keeper.names = {frozenset(GPU.files): Names("GPU-new")}
    assert missing.problems() == {}


def missing_two() -> MissingDevices:
    missing = MissingDevices(Known())
    missing.listed([made(gres="fpga", id="1"), made(gres="fpga", id="2")])
    assert "c1" in missing.problems()["u"]
    return missing


def test_it_is_over_once_the_container_or_the_pod_is_gone() -> None:
    missing = missing_two()
    missing.removed("1")
    assert "container c1" not in missing.problems()["u"]
    missing.pod_removed("other")
    assert "container c2" in missing.problems()["u"]
    missing.pod_removed("u")
    assert missing.problems() == {}


def test_it_is_over_once_the_container_is_made_anew() -> None:
    missing = missing_two()
    missing.recreated("other", "c1")
    missing.recreated("u", "other")
    assert "container c1" in missing.problems()["u"]
    missing.recreated("u", "c1")
    assert "container c1" not in missing.problems()["u"]


def test_a_runtime_that_tells_anew_tells_of_all() -> None:
    missing = missing_two()
    missing.listed([made(gres="fpga", id="2")])
    assert "container c1" not in missing.problems()["u"]


@pytest.mark.real
@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("end", ["ends", "is removed", "is made anew", "ends with its Pod"])
async def test_a_pod_with_such_a_container_has_less_than_its_job_until_that_is_gone(
    end: str, release: str, one_driver: Node
) -> None:
    """12,000 Pods more, so that the runtime tells in parts."""
    node = one_driver
    node.nri = node.gres.with_name("nri")
    pod, other = sandbox(A, "gpu:1(IDX:2)"), sandbox(B, "gpu:1(IDX:1)")
    live = {"state": "CONTAINER_RUNNING"}
    node.bind(A, "gpu:1(IDX:2)")
    # Whatever the path: by number it is the Pod's.
    has: dict[str, Any] = {"linux": {"devices": [{"path": "/dev/own", "major": 60, "minor": 1}]}}
    async with ContainerRuntime.start(release, node.nri, pods=12_000) as runtime:
        await runtime.has(pod, {"id": "c0", **live})
        await runtime.has(pod, {"id": "c9", "state": "CONTAINER_STOPPED"})
        await runtime.has(other, {"id": "c2", "podSandboxId": B, **live, **has})
        async with node.agent() as agent:
            await until(lambda: agent.problems)
            (words,) = agent.problems.values()
            assert agent.problems.keys() == {f"ml/{A}"}
            assert words.startswith("container c was made without the node agent, and lacks /")
            assert words.endswith("/z")
            name = "node_agent_pods_with_less_than_their_jobs"
            assert registry_of(agent).get_sample_value(name) == 1
            node.start(A)
            assert await runtime.runs(pod) == ""  # it is in nobody's way
            assert agent.problems
            match end:
                case "ends" | "is removed":
                    gone = end == "is removed"
                    assert await runtime.ends(pod, {"id": "c0"}, gone=gone) == ""
                case "is made anew":
                    assert (await runtime.creates(pod, {"id": "c3"}))[1] == ""
                case _:
                    assert await runtime.stops(pod) == ""
            node.bind(B, "gpu:1(IDX:1)")  # something happens
            await until(lambda: not agent.problems)
