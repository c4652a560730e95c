"""Tests of containers created without the Pod's devices, while the agent was away."""

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
from tests.node_agent.machines import look
from tests.node_agent.node import A, B
from tests.node_agent.test_containers import sandbox

if TYPE_CHECKING:
    from tests.node_agent.node import Node

GPU, FPGA = Device("gpu", "h100", ("/dev/nvidia0",)), Device("fpga", "", ("/dev/fpga7",))
NUMBERS = {GPU: Number(60, 0), FPGA: Number(60, 7)}
UUID, BY_CDI = Names("GPU-a"), Names("GPU-a", "nvidia.com/gpu=0")
CUDA, RUNTIME = "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"


class Known(Keeper):
    """Stand-in for a keeper: devices and names, without a real machine."""

    def __init__(self, name: Names = UUID) -> None:
        self.machine = Machine((GPU, FPGA), look)
        self.names = {frozenset(GPU.files): name}


def made(*numbers: Number, gres: str = "gpu", id: str = "1", **variables: str) -> Made:  # noqa: A002
    claim = Claim("u", "ml/p", {gres: (0,)} if gres else {}, job=7)
    return Made(claim, id, f"c{id}", variables, frozenset(numbers))


class Missing(MissingDevices):
    """Missing devices of the containers of one Pod."""

    def __init__(self, keeper: Keeper, *containers: Made) -> None:
        super().__init__(keeper)
        self.listed(containers)

    @property
    def words(self) -> str:
        return self.problems().get("u", "")


@pytest.mark.parametrize(
    ("name", "container", "missing"),
    [
        (UUID, made(NUMBERS[GPU], **{CUDA: "GPU-a", RUNTIME: "GPU-a"}), ""),
        (UUID, made(NUMBERS[GPU], **{CUDA: "GPU-a", RUNTIME: "void"}), ""),  # CDI specification removed
        (BY_CDI, made(NUMBERS[GPU], **{CUDA: "GPU-a", RUNTIME: "GPU-a"}), ""),  # CDI specification added
        (BY_CDI, made(**{CUDA: "GPU-a"}), ""),  # CDI may give other files
        (UUID, made(**{CUDA: "GPU-a"}), "/dev/nvidia0"),
        (UUID, made(NUMBERS[GPU]), CUDA),
        (UUID, made(NUMBERS[GPU], **{CUDA: "GPU-b"}), CUDA),
        (BY_CDI, made(NUMBERS[GPU]), CUDA),
        (UUID, made(NUMBERS[FPGA]), f"/dev/nvidia0, {CUDA}"),
        (UUID, made(*NUMBERS.values(), gres="fpga"), ""),  # a privileged container has all devices
        (UUID, made(gres="fpga"), "/dev/fpga7"),
        (UUID, made(gres=""), ""),  # the job has no devices
        (UUID, made(gres="disk"), ""),  # Slurm only counts disks
        (Names(), made(), ""),  # the driver does not report the UUID
    ],
)
def test_missing_devices_are_named(name: Names, container: Made, missing: str) -> None:
    words = f"container c1 was made without the node agent, and lacks {missing}"
    assert Missing(Known(name), container).words == (words if missing else "")


def test_missing_percentage_of_an_mps_part_is_named() -> None:
    keeper, name = Known(), "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
    gpu = replace(GPU, shared={"mps": 100})
    keeper.machine = Machine([gpu], look)
    variables = {CUDA: "GPU-a", RUNTIME: "GPU-a", name: "50"}
    whole = made(NUMBERS[GPU], gres="mps", **variables)
    part = whole._replace(claim=whole.claim._replace(parts={"mps": {0: 20}}))
    assert Missing(keeper, part).words.endswith(f"lacks {name}")
    assert Missing(keeper, part._replace(variables=variables | {name: "20"})).words == ""


def test_report_stays_while_the_devices_are_unknown() -> None:
    keeper = Known(Names())
    missing = Missing(keeper, made())
    assert missing.words == ""
    keeper.names = {frozenset(GPU.files): UUID}
    assert CUDA in missing.words
    keeper.names = {}
    assert CUDA in missing.words


def test_report_ends_after_a_wrong_list_of_devices() -> None:
    keeper = Known(Names("GPU-b"))
    missing = Missing(keeper, made(NUMBERS[GPU], **{CUDA: "GPU-a"}))
    assert missing.words
    keeper.names = {frozenset(GPU.files): UUID}
    assert missing.words == ""
    keeper.names = {frozenset(GPU.files): Names("GPU-new")}  # the container had all devices
    assert missing.words == ""


def test_report_ends_with_the_container_or_the_pod() -> None:
    missing = Missing(Known(), *(made(gres="fpga", id=each) for each in "1234"))
    assert all(f"container c{each} was" in missing.words for each in "1234")
    missing.removed("1")
    assert "container c1" not in missing.words
    missing.recreated("other", "c2")
    missing.recreated("u", "other")
    assert "container c2" in missing.words
    missing.recreated("u", "c2")
    assert "container c2" not in missing.words
    missing.listed([made(gres="fpga", id="4")])
    assert "container c3" not in missing.words
    missing.pod_removed("other")
    assert "container c4" in missing.words
    missing.pod_removed("u")
    assert missing.words == ""


@pytest.mark.real
@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("end", ["ends", "is removed", "is made anew", "ends with its Pod"])
async def test_pod_lacks_devices_until_its_container_ends(end: str, release: str, node: Node) -> None:
    """The runtime has 12,000 other Pods, so the runtime's list arrives in parts."""
    node.nri = node.gres.with_name("nri")
    pod, other = sandbox(A, "gpu:1(IDX:2)"), sandbox(B, "gpu:1(IDX:1)")
    live = {"state": "CONTAINER_RUNNING"}
    node.bind(A, "gpu:1(IDX:2)")
    # The device's number decides, not the path. This is the number of the Pod's device.
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
            assert await runtime.runs(pod) == ""  # the missing devices do not block the Pod
            assert agent.problems
            match end:
                case "ends" | "is removed":
                    gone = end == "is removed"
                    assert await runtime.ends(pod, {"id": "c0"}, gone=gone) == ""
                case "is made anew":
                    assert (await runtime.creates(pod, {"id": "c3"}))[1] == ""
                case _:
                    assert await runtime.stops(pod) == ""
            node.bind(B, "gpu:1(IDX:1)")  # a change, so that the agent checks the Pods
            await until(lambda: not agent.problems)
