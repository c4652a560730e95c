"""Tests of a Node whose container runtime runs without NRI (containerd 1.7). Devices are closed as with
NRI. A Pod gets all devices of the Node or none, and the limits come a moment later."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Final

import pytest

from deploy.local.errors import ClusterError
from deploy.local.spec import GUEST_GPUS
from tests.eventually import eventually
from tests.node.conftest import WITHOUT_NRI
from tests.node.real_node import REFUSED, STARTS_WITHIN_S, Opened, container, open_each
from wellknown import number_list

if TYPE_CHECKING:
    from tests.node.evidence import Evidence
    from tests.node.real_node import RealNode

pytestmark = [pytest.mark.node, pytest.mark.timeout(600)]

GUESTS = WITHOUT_NRI
PODS: Final = 20
WITHIN_MS: Final = 500.0
_MIB: Final = 1 << 20
_LOOKS: Final = """
limits=/sys/fs/cgroup$(cut -d: -f3 /proc/self/cgroup); limits=${limits%/*}
for look in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    read up rest < /proc/uptime
    cpus=$(sed -n 's/^Cpus_allowed_list:[^0-9]*//p' /proc/self/status)
    echo "at $up cpus $cpus memory $(cat $limits/memory.max)"
    usleep 50000
done
echo looked
"""
_LOOK: Final = re.compile(r"^at (\S+) cpus (\S+) memory (\S+)$", re.MULTILINE)


def test_pod_with_all_devices_gets_and_opens_them(node: RealNode) -> None:
    node.create_unprivileged("all", gpus=GUEST_GPUS)
    node.running("all")
    node.has("all", frozenset(range(GUEST_GPUS)))


def test_pod_with_some_devices_is_rejected_with_a_message(node: RealNode) -> None:
    node.create_unprivileged("some", gpus=2)

    def message() -> str:
        return str(((node.actors.see("some") or {}).get("status") or {}).get("message", ""))

    words = f"it asks for 2 of the {GUEST_GPUS}"
    eventually(lambda: words in message(), f"its words: {message()}", STARTS_WITHIN_S)


def test_a_privileged_pod_without_devices_opens_none(node: RealNode) -> None:
    node.run("none")
    opened = node.opens("none")
    assert opened.numbers == frozenset()
    assert opened.said.count(REFUSED) == GUEST_GPUS


def test_native_job_has_the_limits_of_slurm_beside_a_pod(node: RealNode) -> None:
    node.run("pod")
    script = f"grep Cpus_allowed_list /proc/self/status\n{open_each()}"
    job, said = node.run_job(script, "--gres=gpu:2")
    own = node.gpus_of_job(job)
    assert len(own) == 2
    assert Opened.of(said).numbers == own
    cores = number_list.expand(said.partition("Cpus_allowed_list:")[2].split()[0])
    assert set(cores).isdisjoint(number_list.expand(node.limit("pod", "cpuset.cpus")))


def test_step_in_the_job_of_a_pod_ends_and_the_pod_stays(node: RealNode) -> None:
    """With the guest's Slurm 24.11, a user can start a step in the job of a Pod."""
    node.run("pod")
    job, since = node.allocation("pod").job_id, node.steps_in_jobs_of_pods()
    with pytest.raises(ClusterError, match="Killed"):
        node.cluster.run_slurm("srun", f"--jobid={job}", "--overlap", "sleep", "600")
    assert node.steps_in_jobs_of_pods() == since + 1
    words = f"a user ran srun in job {job} of Pod {node.actors.namespace}/{node.actors.full('pod')}"
    eventually(lambda: words in node.device_problem()["message"], "the condition", STARTS_WITHIN_S)
    assert node.device_problem()["status"] == "False"
    assert node.job_state(job) == "RUNNING"
    assert node.inside("pod", "echo lives") == "lives\n"


def looked(node: RealNode, name: str) -> str:
    """Returns the output of a Pod that has finished its checks; empty before."""
    said = node.actors.kubectl("logs", node.actors.full(name)).stdout
    return said if "looked" in said else ""


def test_limits_are_in_force_soon(node: RealNode, evidence: Evidence) -> None:
    """The measured time starts at the Pod's first instruction."""
    for number in range(PODS):
        name = f"pod-{number}"
        whole = {**container(), "command": ["sh", "-c", _LOOKS]}
        node.create_of(name, [whole], restartPolicy="Never")
        said = eventually(partial(looked, node, name), f"{name} has looked", STARTS_WITHIN_S)
        granted = node.allocation(name)
        looks = [(float(up), cpus, memory) for up, cpus, memory in _LOOK.findall(said)]
        at = next(
            up
            for up, cpus, memory in looks
            if cpus == granted.cores and memory != "max" and int(memory) <= granted.memory_mb * _MIB
        )
        evidence.applied_without_nri_ms.append((at - looks[0][0]) * 1000)
        node.actors.delete(name)
    assert max(evidence.applied_without_nri_ms) <= WITHIN_MS
