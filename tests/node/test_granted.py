"""Tests that a Pod has the granted cores, memory and devices from the first process, and that the Node
reports problems and the grant."""

from __future__ import annotations

import json
import time
from functools import partial
from typing import TYPE_CHECKING

import pytest

from deploy.local.guest.nodes import GPUS
from deploy.local.spec import GUEST_CPUS, GUEST_GPUS
from tests.eventually import eventually
from tests.node.real_node import STARTS_WITHIN_S, container
from wellknown.names import DEVICE_PROBLEM

if TYPE_CHECKING:
    from tests.node.evidence import Evidence
    from tests.node.real_node import RealNode

pytestmark = [pytest.mark.node, pytest.mark.timeout(600)]

MIB = 1 << 20
_RECONCILED_S = 12.0
"""Longer than the 10 s after which the kubelet's CPU manager writes the CPUs again."""
_ASK = """
import http.client, socket
link = http.client.HTTPConnection("agent")
link.sock = socket.socket(socket.AF_UNIX)
link.sock.connect("/run/slurm-extender/node-agent.sock")
link.request("GET", "/gate/v1/clear")
print(link.getresponse().read().decode(), end="")
"""


def cores_of(node: RealNode, name: str) -> str:
    """Returns the cores of the container's first process."""
    return node.inside(name, "grep Cpus_allowed_list /proc/1/status").split()[-1]


def gate(node: RealNode) -> str:
    return node.guest.run(f"python3 -c '{_ASK}'").output.strip()


def test_pod_has_the_cores_of_its_job_and_cannot_take_other_cores(node: RealNode) -> None:
    for name, cpu in (("one", "1"), ("two", "2")):
        node.create(name, cpu=cpu)
    for name in ("one", "two"):
        node.running(name)
        assert cores_of(node, name) == node.allocation(name).cores  # one thread per core, in order
        assert node.inside(name, "nproc").strip() == name.replace("one", "1").replace("two", "2")
    assert {cores_of(node, "one")}.isdisjoint(cores_of(node, "two").replace("-", ","))
    other = cores_of(node, "two")[0]
    assert "Invalid argument" in node.inside("one", f"taskset -p -c {other} 1 2>&1")


def test_a_pod_has_the_memory_of_its_job_and_no_swap(node: RealNode) -> None:
    node.run("one")
    granted = node.allocation("one").memory_mb
    assert granted > 0
    assert int(node.limit("one", "memory.max")) <= granted * MIB
    assert node.limit("one", "memory.swap.max") == "0"
    assert "oom_kill 0" in node.limit("one", "memory.events")
    take = f"dd if=/dev/zero of=/dev/null bs={2 * granted}M count=1"
    done = node.actors.kubectl("exec", node.actors.full("one"), "--", "sh", "-c", take)
    assert done.returncode != 0
    assert "oom_kill 0" not in node.limit("one", "memory.events")


def in_force(node: RealNode, name: str) -> tuple[str, int]:
    """Returns the cores and the memory of a Pod's cgroup."""
    memory = node.limit(name, "memory.max")
    return node.limit(name, "cpuset.cpus"), -1 if memory == "max" else int(memory)


def are_put_right(node: RealNode, evidence: Evidence, name: str, changed: int, since: int) -> None:
    """Waits until a Pod has the limits of the job again. `changed` is the number of limits that the test
    changed, after the agent had repaired `since` limits."""
    granted = node.allocation(name)
    right = (granted.cores, granted.memory_mb * MIB)
    evidence.changed += changed
    eventually(lambda: in_force(node, name) == right, f"{in_force(node, name)} put right", 30)
    eventually(lambda: node.limits_repaired() >= since + changed, "the agent counts it", 30)
    evidence.repaired += changed
    assert cores_of(node, name) == granted.cores


def test_changed_limits_are_repaired(node: RealNode, evidence: Evidence) -> None:
    node.run("one")
    since = node.limits_repaired()
    node.write_limit("one", "cpuset.cpus", "0-3")
    node.write_limit("one", "memory.max", "max")
    are_put_right(node, evidence, "one", 2, since)


def test_raised_limit_in_the_pod_spec_gives_no_more_memory(node: RealNode, evidence: Evidence) -> None:
    """The kubelet writes the Pod's cgroup when a user raises a limit in place, but the Pod's job still
    has the same memory."""
    limited = container()
    limited["resources"]["limits"] = {"cpu": "1", "memory": "128Mi"}
    node.create_of("one", [limited])
    node.running("one")
    assert in_force(node, "one")[1] == node.allocation("one").memory_mb * MIB
    since = node.limits_repaired()
    limits = {"resources": {"limits": {"memory": "256Mi"}}}
    patch = json.dumps({"spec": {"containers": [{"name": "c", **limits}]}})
    resize = ("patch", "pod", node.actors.full("one"), "--subresource", "resize", "-p", patch)
    done = node.actors.kubectl(*resize)
    assert done.returncode == 0, done.stderr
    eventually(lambda: node.limits_repaired() > since, "the kubelet has written the new limit", 60)
    are_put_right(node, evidence, "one", 1, since)


def test_limits_outlive_a_reload_of_systemd(node: RealNode, evidence: Evidence) -> None:
    if node.cluster.spec.guest_cgroups != "systemd":
        pytest.skip("there is no systemd in this guest")
    node.run("one")
    since = node.limits_repaired()
    for times in (1, 2, 3):
        node.guest.run("systemctl daemon-reload")
        eventually(partial(_has_put_right, node, since + times), "systemd has undone a limit", 60)
        are_put_right(node, evidence, "one", 1, since + times - 1)


def _has_put_right(node: RealNode, limits: int) -> bool:
    return node.limits_repaired() >= limits


def test_the_kubelets_static_cpu_manager_is_overruled(node: RealNode) -> None:
    """The CPU manager gives any core except core 0, and Slurm gives core 0 first. So both choose
    different cores."""
    with node.kubelet_with("cpuManagerPolicy: static", 'reservedSystemCPUs: "0"'):
        whole = container()
        whole["resources"]["limits"] = whole["resources"]["requests"]  # so that the Pod gets cores
        node.create_of("one", [whole])
        node.running("one")
        assert node.allocation("one").cores == "0"
        state = json.loads(node.guest.run("cat /var/lib/kubelet/cpu_manager_state").output)
        assert node.uid("one") in state["entries"], state
        assert cores_of(node, "one") == "0"
        assert node.agent_says("the kubelet's CPU manager gave a container other CPUs")
        time.sleep(_RECONCILED_S)
        assert cores_of(node, "one") == "0"


def test_unprivileged_container_gets_and_opens_its_devices(node: RealNode) -> None:
    node.create_unprivileged("one", gpus=2)
    node.running("one")
    own = node.granted("one")
    assert len(own) == 2
    assert node.opens("one").numbers == own
    listed = node.inside("one", "ls /dev").split()
    assert {name for name in listed if name.startswith("fgpu")} == {f"fgpu{n}" for n in own}


def test_pod_waits_with_an_event_while_another_pod_has_its_device(node: RealNode) -> None:
    """The first Pod is deleted by force. The kubelet gives this Pod the grace period of its spec, and
    starts the next Pod."""
    node.create_here("first", terminationGracePeriodSeconds=30)
    node.running("first")
    node.grant("first", [0])
    node.has("first", frozenset({0}))
    uid = node.uid("first")
    node.guest.run("pkill -STOP -x kubelet")
    node.actors.kubectl("delete", "pod", node.actors.full("first"), "--force", "--grace-period=0")
    node.actors.gone("first")
    assert gate(node) == f"there {node.actors.namespace}/{node.actors.full('first')}"
    node.create_here("next")
    node.grant("next", [0])
    node.guest.run("pkill -CONT -x kubelet")
    words = "processes of a Pod that is gone have a device of its job"
    eventually(lambda: words in node.actors.events("next").get("FailedCreatePodSandBox", ""), words, 120)
    eventually(lambda: not node.processes_of(uid), "the first Pod's processes gone", 120)
    node.running("next")
    node.has("next", frozenset({0}))
    node.actors.delete("next")
    node.actors.gone("next", STARTS_WITHIN_S)
    eventually(lambda: gate(node) == "ask", "no process of a Pod that is gone", 60)


def test_a_device_that_fails_drains_the_node_until_it_is_back(node: RealNode) -> None:
    def condition() -> str | None:
        return node.device_problem().get("status")

    eventually(lambda: condition() == "False", "every device can be used")
    node.guest.run(f"mv {GPUS[7]} /dev/away")
    try:
        eventually(lambda: condition() == "True", "the condition", 30)
        words = f"slurm-extender: condition {DEVICE_PROBLEM}: gpu 7: {GPUS[7]}: No such file"
        eventually(lambda: node.drained().startswith(words), f"drained: {node.drained()}", 30)
    finally:
        node.guest.run(f"mv /dev/away {GPUS[7]}")
    eventually(lambda: condition() == "False", "the condition gone", 30)
    eventually(lambda: node.drained() == "none", "resumed", 30)
    node.counts()


def test_core_of_two_jobs_is_reported_until_one_job_ends(node: RealNode) -> None:
    """The extender is paused, because the extender would evict the Pod of a suspended job."""

    def reason() -> str | None:
        return node.device_problem().get("reason")

    node.run("pod")
    job = str(node.allocation("pod").job_id)
    node.cluster.pause("extender")
    try:
        node.cluster.run_slurm("scontrol", "suspend", job)
        native = node.sbatch("sleep 600", f"-n{GUEST_CPUS}", "--mem=100")
        eventually(lambda: node.job_state(native) == "RUNNING", "the native job runs")
        node.cluster.run_slurm("scontrol", "resume", job)
        eventually(lambda: reason() == "CoresShared", "the condition", 60)
        told = node.device_problem()
        assert told["status"] == "False"
        assert f"Pod {node.actors.namespace}/{node.actors.full('pod')} and " in told["message"]
        assert node.drained() == "none"
        node.cluster.run_slurm("scancel", str(native))
        eventually(lambda: reason() == "DevicesUsable", "the condition without the cores", 60)
    finally:
        node.cluster.resume("extender")


def test_status_shows_the_grant_and_the_limits_in_force(node: RealNode) -> None:
    node.run("one", gpus=2)
    own = ",".join(map(str, sorted(node.granted("one"))))
    job = node.sbatch("sleep 600", "-n1", "--mem=100")
    eventually(lambda: node.job_state(job) == "RUNNING", "the job runs")
    said = node.node_agent("status")
    (line,) = [line for line in said.splitlines() if node.actors.full("one") in line]
    cores = node.allocation("one").cores
    words = line.replace("│", " ").split()
    assert words[1:3] == [cores, cores]
    assert words.count("gpu") == 2
    assert [word for word in words if word == own] == [own, own] or f"{own[0]}-{own[-1]}" in words
    assert "100 MiB" in said
    assert len(GPUS) == GUEST_GPUS
