"""Tests of a real Node: the guest is in Slurm and in Kubernetes, and runs native jobs and Pods."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from deploy.local.spec import GUEST, GUEST_GPUS
from tests.eventually import eventually
from tests.node.real_node import Opened, open_each

if TYPE_CHECKING:
    from tests.node.real_node import RealNode

pytestmark = [pytest.mark.node, pytest.mark.timeout(600)]

_JOB = f"""
grep Cpus_allowed_list /proc/self/status
step=/sys/fs/cgroup$(cut -d: -f3 /proc/self/cgroup)
echo "memory $(cat ${{step%/step_batch*}}/memory.max)"
echo "gpus $SLURM_JOB_GPUS"
{open_each()}
"""


def test_node_is_ready_in_kubernetes_and_idle_in_slurm(node: RealNode) -> None:
    told = node.actors.kubectl("get", "nodes", "--no-headers").stdout.split()
    assert told[:2] == [GUEST, "Ready"]
    shown, expected = ("sinfo", "-hN", "-o", "%N %T %G"), [GUEST, "idle", f"gpu:h100:{GUEST_GPUS}"]
    eventually(
        lambda: node.cluster.run_slurm(*shown).stdout.split() == expected, "the node idle, with its GPUs"
    )
    controllers = node.guest.run("cat /sys/fs/cgroup/cgroup.controllers").output.split()
    assert controllers[:3] == ["cpuset", "cpu", "io"]


def test_a_pod_that_slurm_placed_runs_as_a_real_container(node: RealNode) -> None:
    node.create("one", gpus=2)
    assert node.actors.bound("one") == GUEST
    node.running("one")
    job = node.actors.scontrol("one")
    assert (job["JobState"], job["NodeList"]) == ("RUNNING", GUEST)
    assert len(node.granted("one")) == 2
    assert node.processes_of(node.uid("one")), "no process in the Pod's cgroup"
    assert node.inside("one", "cat /proc/1/cmdline").split("\0")[:2] == ["sleep", "2147483647"]
    uid = node.uid("one")
    node.actors.delete("one")
    node.actors.gone("one", 120)
    eventually(lambda: not node.processes_of(uid), "no process left", 120)


def test_output_of_a_container_is_in_its_log(node: RealNode) -> None:
    node.run("one")
    node.inside("one", "echo heard > /proc/1/fd/1")
    name = node.actors.full("one")
    eventually(lambda: "heard" in node.actors.kubectl("logs", name).stdout, "what was printed", 120)


def test_native_job_has_the_limits_of_slurm_beside_a_pod(node: RealNode) -> None:
    node.run("pod", gpus=3)
    job, said = node.run_job(_JOB, "--gres=gpu:2")
    words = dict(line.split(" ", 1) for line in said.splitlines() if " " in line)
    assert words["memory"] == str(100 << 20)
    cores = said.split("Cpus_allowed_list:", 1)[1].split()[0]
    assert cores.isdigit(), f"one CPU, not {cores}"
    opened = Opened.of(said)
    assert opened.numbers == frozenset(map(int, words["gpus"].split(",")))
    assert len(opened.numbers) == 2
    assert opened.refused == GUEST_GPUS - 2
    assert opened.numbers.isdisjoint(node.granted("pod"))
    node.has("pod", node.granted("pod"))
    assert node.job_state(job) == "RUNNING"
