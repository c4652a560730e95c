"""Tests that the kubelet counts for each Pod the devices that Slurm granted, while Pods and programs
come and go."""

from __future__ import annotations

import json
import random
import shlex
from concurrent.futures import ThreadPoolExecutor
from math import inf
from typing import TYPE_CHECKING, Final

import pytest

from deploy.local.guest.nodes import agent_argv
from deploy.local.layout import CHECKOUT
from node_agent.runtime.kubelet_devices import PATIENCE_S
from tests.eventually import eventually
from tests.node.conftest import WITH_NRI, Guest
from tests.node.evidence import p99
from tests.node.real_node import STARTS_WITHIN_S
from tests.node.test_figures import times_slower

if TYPE_CHECKING:
    from tests.node.real_node import RealNode

GUESTS = (WITH_NRI[0], Guest("24.11", "systemd", nri=True))
pytestmark = [pytest.mark.node, pytest.mark.timeout(2400)]

_MIXES: Final = ((1, 1, 1), (2, 1, 1), (1, 2, 2), (3, 1, 1), (2, 1, 2), (2, 2, 2))
PODS: Final = 200
_RESTARTS_EACH: Final = 10
"""Number of bursts of Pods before each restart. The kubelet and the agent restart in turn."""
_SOCKET: Final = "/var/lib/kubelet/pod-resources/kubelet.sock"
_LIST: Final = """
import asyncio, json, sys
from pathlib import Path
from node_agent.kubelet.pod_resources import devices_of_pods
found = asyncio.run(devices_of_pods(Path(sys.argv[1]), sys.argv[2]))
print(json.dumps({pod: sorted(devices) for pod, devices in found}))
"""
_CHOSEN: Final = "the kubelet chooses devices"
ANSWER_MS, LATE_MS = 100, 100
"""Limits on a machine without emulation: of the 99th percentile, and of the time by which the agent's
other work delays an answer beyond `PATIENCE_S`. Together, an answer takes at most a second."""


def counted(node: RealNode, resource: str) -> dict[str, list[str]]:
    """Returns the devices of each Pod by the kubelet's PodResources."""
    environment = agent_argv(node.cluster.spec, node.cluster.ports, "status")[:2]
    argv = (*environment, "python3", "-c", _LIST, _SOCKET, resource)
    told: dict[str, list[str]] = json.loads(node.guest.run(shlex.join(argv)).output.splitlines()[-1])
    return told


def answers_ms(log: str) -> list[float]:
    """Returns the times of the agent's answers to the kubelet."""
    lines = (json.loads(line) for line in log.splitlines() if '"devices preferred"' in line)
    return [float(line["ms"]) for line in lines]


class Bursts:
    """Creates three Pods at a time, and deletes the Pods in random order. One Pod stays until the next
    burst."""

    def __init__(self, node: RealNode) -> None:
        self._node, self._random = node, random.Random(40)
        self.compared = 0
        self.differ: list[str] = []
        self._stays: list[str] = []

    def burst(self, number: int) -> None:
        sizes = self._random.choice(_MIXES)
        names = [f"burst{number}-{n}" for n in range(len(sizes))]
        with ThreadPoolExecutor() as together:
            list(together.map(lambda name, gpus: self._node.create(name, gpus=gpus), names, sizes))
        for name in names:
            self._node.running(name)
        has = counted(self._node, self._node.gpu)
        for name in names:
            self._compare(name, has[f"default/{self._node.actors.full(name)}"])
        keep = self._random.choice(names)
        going = [*(name for name in names if name != keep), *self._stays]
        self._random.shuffle(going)
        self._stays = [keep]
        for name in going:
            argv = ("delete", "pod", self._node.actors.full(name), "--wait=false", "--grace-period=1")
            self._node.actors.kubectl(*argv)
        gone = lambda: all(self._node.actors.see(name) is None for name in going)  # noqa: E731
        eventually(gone, f"{going} gone", STARTS_WITHIN_S)

    def _compare(self, name: str, devices: list[str]) -> None:
        """Compares the kubelet's count, the grant, and the devices that the container can open."""
        granted, opened = self._node.granted(name), self._node.opens(name).numbers
        numbers = {int(device.rpartition("-")[2]) for device in devices}
        self.compared += 1
        if not numbers == granted == opened:
            self.differ.append(f"{name}: {devices}, granted {granted}, opens {opened}")


def test_kubelet_counts_the_granted_devices(node: RealNode) -> None:
    log = node.cluster.logs / "node-agent.log"
    bursts, begins = Bursts(node), log.stat().st_size
    for number in range(-(-PODS // 3)):
        bursts.burst(number)
        assert bursts.differ == []
        assert number or answers_ms(log.read_bytes()[begins:].decode())
        turn, rest = divmod(number, _RESTARTS_EACH)
        if rest == _RESTARTS_EACH // 2:
            node.restart("node-agent" if turn % 2 else "kubelet")
    assert bursts.compared >= PODS
    assert bursts.differ == []
    assert node.metric_of_gpus("node_agent_pods_with_other_devices") == 0
    said = log.read_bytes()[begins:].decode()  # from all starts of the agent
    answers = answers_ms(said)
    in_ms, slower = p99(answers), times_slower(node)
    late_ms = max(0.0, max(answers, default=inf) - 1000 * PATIENCE_S)
    told = {
        "pods": bursts.compared,
        "differ": len(bursts.differ),
        "chosen_by_kubelet": said.count(_CHOSEN),
        "answer_ms_p99": in_ms,
        "answer_ms_max": max(answers, default=None),
        "late_ms_without_emulation": round(late_ms / slower, 1),
        "emulated_times_slower": slower,
    }
    build = CHECKOUT / "build"
    build.mkdir(exist_ok=True)
    (build / f"gpu-{node.cluster.spec.release}.json").write_text(json.dumps(told, indent=2) + "\n")
    assert _CHOSEN not in said
    assert in_ms is not None
    assert in_ms / slower < ANSWER_MS
    assert late_ms / slower < LATE_MS


def test_pod_of_no_job_is_rejected_with_a_message(node: RealNode) -> None:
    node.create_here("other", gpus=1)

    def rejection() -> str:
        seen = node.actors.see("other")
        return str(seen["status"].get("message", "")) if seen else ""

    eventually(
        lambda: "no job of Slurm placed this Pod" in rejection(), "the rejection", STARTS_WITHIN_S
    )
