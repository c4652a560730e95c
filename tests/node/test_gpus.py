"""Tests of NVIDIA's GPUs on a real Node, as NVML reports the GPUs. Each Pod has the GPUs of the Pod's
job, by file and by UUID. The agent reports failures of a GPU or of the driver to Kubernetes and to
Slurm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import httpx
import pytest

from deploy.local.spec import DEFAULT_RELEASE, GUEST
from tests.end_to_end.actors import Actors
from tests.eventually import eventually
from tests.node.conftest import Guest
from tests.node.nvidia_node import (
    FILES,
    NOT_COUNTED,
    PART,
    RESOURCES,
    TYPES,
    UUIDS,
    WHOLE,
    NvidiaNode,
    open_each,
    opened,
)
from tests.node.real_node import STARTS_WITHIN_S, container
from wellknown.names import DEVICE_PROBLEM

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deploy.local.cluster import Cluster

pytestmark = [pytest.mark.node, pytest.mark.timeout(600)]

GUESTS = (Guest(DEFAULT_RELEASE, "cgroupfs", RESOURCES),)
_SEEN_WITHIN_S: Final = 90.0
"""Longer than the 30 s after which the agent reads a driver again."""


@pytest.fixture(scope="module")
def all_nodes(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NvidiaNode]:
    actors = Actors(cluster)
    with NvidiaNode(actors, tmp_path_factory.mktemp("gpus")).with_gpus() as node:
        yield node
    actors.close()


def opens(node: NvidiaNode, name: str) -> set[str]:
    """Returns the files of the driver that a privileged Pod can open."""
    return opened(node.inside(name, open_each("/node-dev")))


def has_its_own(node: NvidiaNode, name: str) -> frozenset[int]:
    """Waits until a privileged Pod can open exactly the files of its job's GPUs. Returns the numbers of
    the GPUs."""
    node.running(name)
    own = node.granted(name)
    files = {file for number in own for file in FILES[number]}
    eventually(lambda: opens(node, name) == files, f"{name} opens {files}", STARTS_WITHIN_S)
    return own


def variables(node: NvidiaNode, name: str) -> dict[str, str]:
    """Returns the variables that name the GPUs for NVIDIA's programs, from the container's first
    process."""
    lines = node.inside(name, "tr '\\0' '\\n' < /proc/1/environ").splitlines()
    told = dict(line.split("=", 1) for line in lines if "=" in line)
    return {key: value for key, value in told.items() if key.endswith("_VISIBLE_DEVICES")}


def called(*numbers: int) -> dict[str, str]:
    uuids = ",".join(UUIDS[number] for number in numbers)
    return {"CUDA_VISIBLE_DEVICES": uuids, "NVIDIA_VISIBLE_DEVICES": uuids}


def listed(node: NvidiaNode, name: str) -> set[str]:
    """Returns the files of the driver in an unprivileged container."""
    found = node.inside(name, "find /dev -name 'nvidia*' -type c").split()
    return {file.removeprefix("/dev/") for file in found}


def test_slurm_counts_the_gpus_that_nvml_reports(node: NvidiaNode) -> None:
    counted = ",".join(f"gpu:{kind}:2(S:0)" for kind in TYPES.values())
    shown = ("sinfo", "-hN", "-o", "%N %T %G")
    eventually(
        lambda: node.cluster.run_slurm(*shown).stdout.split() == [GUEST, "idle", counted],
        "the node idle, with its GPUs",
    )
    printed = node.guest.run("cat /run/slurm-gres").output.splitlines()
    lines = [line for line in printed if "Gres " in line]
    assert len(lines) == len(FILES)
    for line, files in zip(lines, FILES, strict=True):
        assert f"File={','.join(f'/dev/{file}' for file in files)}" in line
    assert node.device_problem()["status"] == "False", node.device_problem()


def test_pod_and_native_job_have_a_gpu_each(node: NvidiaNode) -> None:
    node.create_unprivileged("pod", gpus=1)
    node.running("pod")
    (own,) = node.granted("pod")
    assert listed(node, "pod") == {*FILES[own], "nvidiactl"}
    assert variables(node, "pod") == called(own)
    job, said = node.run_job(open_each("/dev"), f"--gres=gpu:{TYPES[WHOLE]}:1")
    # Slurm closes only the GPUs that Slurm counts.
    assert opened(said) == {*FILES[1 - own], NOT_COUNTED}
    assert node.gpus_of_job(job) == {1 - own}
    assert node.inside("pod", f": < /dev/{FILES[own][0]} && echo opened").strip() == "opened"


def test_privileged_pod_opens_its_own_gpu_alone(node: NvidiaNode) -> None:
    """The Pod cannot open a GPU that Slurm does not count, either."""
    for name in ("one", "two"):
        node.create(name, gpus=1)
    own = {name: has_its_own(node, name) for name in ("one", "two")}
    assert own["one"].isdisjoint(own["two"])
    for name, (number,) in own.items():
        assert variables(node, name) == called(number)
    assert NOT_COUNTED not in opens(node, "one")
    (other,) = own["two"]
    made = f"mknod /tmp/made c 195 {other}; ( : < /tmp/made ) 2>&1"
    assert "Operation not permitted" in node.inside("one", made)


def test_pod_opens_its_own_mig_instance_alone(node: NvidiaNode) -> None:
    for name in ("one", "two"):
        node.create_of(name, [container(1, resource=PART)])
    seen = set[int]()
    for name in ("one", "two"):
        own = has_its_own(node, name)
        assert variables(node, name) == called(*own)
        seen |= own
    assert seen == {2, 3}
    job = node.sbatch("sleep 600", "-n1", "--mem=100", f"--gres=gpu:{TYPES[PART]}:1")
    eventually(lambda: node.job_state(job) == "PENDING", "a native job waits for an instance")


# Failures of a GPU

FAILURES = {
    "its driver complains": (
        {},
        ("xid gpu={n} code=79",),
        "its driver complains: XID 79",
        "after a start of the agent",
    ),
    "its memory waits for a reset": (
        {"pending": 1},
        (),
        "a row of its memory is remapped at the next reset",
        "by itself",
    ),
    "its memory has failed": (
        {"failed": 1},
        (),
        "a row of its memory cannot be remapped: replace the GPU",
        "by itself",
    ),
    "it fell off the bus": (
        {"lost": 1, "fails": 1},
        (),
        "NVML does not know it (GPU {n} of NVML: GPU is lost)",
        "after a start of the agent",
    ),
    "it vanished while it was asked": (
        {"lost": 2},
        (),
        "NVML does not know it (NVML: GPU is lost)",
        "after a start of the agent",
    ),
}


def drained_for(node: NvidiaNode, words: str) -> None:
    """Waits until the Node's condition has this message, and Slurm has drained the node for this
    reason."""
    eventually(lambda: node.device_problem().get("message") == words, words, _SEEN_WITHIN_S)
    told = node.device_problem()
    assert (told["status"], told["reason"]) == ("True", "DeviceFailed")
    reason = f"slurm-extender: condition {DEVICE_PROBLEM}: {words}"
    eventually(lambda: node.drained() == reason, f"drained: {node.drained()}")


def is_resumed(node: NvidiaNode) -> None:
    eventually(lambda: node.drained() == "none", f"resumed: {node.drained()}")


@pytest.mark.parametrize("failure", FAILURES)
def test_failed_gpu_drains_the_node_until_the_repair(node: NvidiaNode, failure: str) -> None:
    """Pods keep the other GPUs."""
    fields, lines, words, comes_back = FAILURES[failure]
    node.create("pod", gpus=1)
    (own,) = has_its_own(node, "pod")
    broken = 1 - own
    node.fail(broken, *(line.format(n=broken) for line in lines), **fields)
    drained_for(node, f"gpu {broken}: {words.format(n=broken)}")
    eventually(lambda: node.allocatable()[WHOLE] == "1", "the kubelet counts one of use", 60)
    assert node.allocatable()[PART] == "2"
    assert opens(node, "pod") == {*FILES[own]}
    node.repair(anew=comes_back != "by itself")
    is_resumed(node)
    node.counts()
    assert opens(node, "pod") == {*FILES[own]}


def the_extender_has_looked(node: NvidiaNode, name: str) -> None:
    """Creates a Pod that waits in Slurm. When the Pod waits, the extender has seen all earlier
    changes."""
    node.create(name, gpus=1)
    node.actors.queued(name)


def test_administrators_drain_stays_through_gpu_failure_and_repair(node: NvidiaNode) -> None:
    node.cluster.run_slurm("scontrol", "update", f"nodename={GUEST}", "state=drain", "reason=my own")
    try:
        node.fail(0, pending=1)
        eventually(lambda: node.device_problem()["status"] == "True", "the condition", _SEEN_WITHIN_S)
        the_extender_has_looked(node, "while")
        assert node.drained() == "my own"
        node.repair(anew=False)
        the_extender_has_looked(node, "after")
        assert node.drained() == "my own"
    finally:
        node.cluster.run_slurm("scontrol", "update", f"nodename={GUEST}", "state=resume")
    is_resumed(node)


def test_hanging_driver_drains_the_node_and_delays_nothing_else(node: NvidiaNode) -> None:
    node.create("pod", gpus=1)
    (own,) = has_its_own(node, "pod")
    node.create_here("next")
    node.fail(None, "driver hangs=1")
    drained_for(node, "a driver has not answered for 10 s")
    health = f"http://127.0.0.1:{node.cluster.ports['node-agent-health']}/readyz"
    assert httpx.get(health, timeout=10).status_code == 200
    node.grant("next", [1 - own])  # the Pod runs, and gets the grant later
    assert has_its_own(node, "next") == {1 - own}
    memory = node.limit("pod", "memory.max")
    node.write_limit("pod", "memory.max", "max")
    eventually(lambda: node.limit("pod", "memory.max") == memory, "its limit put right", 30)
    node.restart_agent()
    assert has_its_own(node, "pod") == {own}
    node.repair(anew=False)
    is_resumed(node)
