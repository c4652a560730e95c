"""Tests of native jobs, managed Pods and unmanaged Pods on the same nodes: no resource is given away
twice.

The extender guarantees the order "job first": no Pod is bound to the resources of a running job. Slurm
does not know of unmanaged Pods, so Slurm may start a later native job on the resources of such a Pod.
The native jobs in these tests therefore start before the unmanaged Pods.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from deploy.local.spec import ClusterSpec
from extender.unmanaged.free_capacity import TAKEN
from tests.end_to_end.actors import Actors, Manifest
from tests.eventually import eventually
from wellknown.names import CAPACITY_FREED
from wellknown.resources import effective_requests

pytestmark = pytest.mark.real

GPU = "nvidia.com/gpu"
MEBIBYTE = 1 << 20
SILENT = (
    r"Slurm has not answered since (\d\d:\d\d) UTC; free capacity of its nodes is unknown;"
    r" kube-scheduler retries the Pod"
)


def capacity(spec: ClusterSpec) -> Counter[str]:
    return Counter(
        {"cpu": spec.cpus_per_node, "memory": spec.memory_mb * MEBIBYTE, GPU: spec.gpus_per_node}
    )


def sbatch(
    actors: Actors, node: str, *, cpus: int, memory_mb: int, gpus: int, name: str = "native"
) -> None:
    """Submits a native job of alice for a node."""
    asked = (f"-c{cpus}", f"--mem={memory_mb}", f"--gres=gpu:{gpus}", f"--job-name={name}-{node}")
    actors.cluster.run_slurm("sbatch", "-w", node, "-n1", *asked, "--wrap", "sleep 900", user="alice")


def native_jobs(actors: Actors) -> Iterator[tuple[str, Counter[str]]]:
    """Yields the node and the resources of each running job of alice."""
    shown = actors.cluster.run_slurm("scontrol", "-o", "show", "job").stdout
    for line in shown.splitlines():
        job = dict(word.split("=", 1) for word in line.split() if "=" in word)
        if job.get("UserId", "").startswith("alice") and job["JobState"] == "RUNNING":
            tres = dict(part.split("=") for part in job["AllocTRES"].split(","))
            yield (
                job["NodeList"],
                Counter(
                    {
                        "cpu": int(tres["cpu"]),
                        "memory": int(tres["mem"].removesuffix("M")) * MEBIBYTE,
                        GPU: int(job.get("TresPerNode", "gres/gpu:0").split(":")[-1]),
                    }
                ),
            )


def used(actors: Actors, pods: dict[str, Manifest]) -> dict[str, Counter[str]]:
    """Returns the resources of native jobs and bound Pods on each node."""
    found = {name: Counter[str]() for name in actors.cluster.spec.node_names}
    for node, has in native_jobs(actors):
        found[node].update(has)
    for manifest in pods.values():
        node = manifest["spec"].get("nodeName")
        if node and manifest["status"]["phase"] not in ("Succeeded", "Failed"):
            found[node].update({k: float(v) for k, v in effective_requests(manifest["spec"]).items()})
    return found


def assert_nothing_is_overcommitted(actors: Actors) -> dict[str, Manifest]:
    """Asserts that no node is overcommitted, and returns the Pods. Reads the jobs after the Pods: no
    later job may use a Pod's resources."""
    pods = actors.pods()
    has = capacity(actors.cluster.spec)
    for node, amounts in used(actors, pods).items():
        over = {name: amount for name, amount in amounts.items() if amount > has[name]}
        assert not over, f"{node} has {dict(has)}, but is used by {dict(amounts)}"
    return pods


def unmanaged(actors: Actors, name: str, **given: Any) -> None:
    actors.create(name, scheduler="default-scheduler", **given)


def reason(actors: Actors, name: str) -> str:
    return actors.condition(name, "PodScheduled").get("message", "")


def all_native_run(actors: Actors, count: int) -> None:
    eventually(lambda: len(list(native_jobs(actors))) == count, "native jobs run")


def test_a_mixed_workload_never_overcommits_a_node(actors: Actors) -> None:
    """Four nodes have 8 CPUs, 16,000 MB and 4 GPUs each. The native jobs leave few CPUs on node-1,
    little memory on node-2, and no GPUs on node-3."""
    sbatch(actors, "node-1", cpus=6, memory_mb=1000, gpus=0)
    sbatch(actors, "node-2", cpus=1, memory_mb=15_000, gpus=0)
    sbatch(actors, "node-3", cpus=1, memory_mb=1000, gpus=4)
    all_native_run(actors, 3)
    names = [f"u-{number}" for number in range(30)]
    for number, name in enumerate(names):
        if number % 3 == 0:
            actors.create(f"m-{number}", cpu="1", memory="500Mi", gpus=number % 2)
        unmanaged(actors, name, cpu="500m", memory="1500Mi", gpus=int(number % 3 == 0))
    deadline = time.monotonic() + 15
    while time.monotonic() < deadline:
        pods = assert_nothing_is_overcommitted(actors)
    bound = [name for name in names if pods[actors.full(name)]["spec"].get("nodeName")]
    assert 5 <= len(bound) < len(names), "some fit, and not all"
    jobs = actors.squeue()
    for name in names:
        assert actors.job_name(name) not in jobs
    actors.cluster.run_slurm("scancel", "-u", "alice")
    eventually(lambda: not list(native_jobs(actors)), "native jobs end")
    more = eventually(
        lambda: (
            len(
                [
                    p
                    for p in assert_nothing_is_overcommitted(actors).values()
                    if p["spec"].get("nodeName")
                ]
            )
            > len([p for p in pods.values() if p["spec"].get("nodeName")])
        ),
        "what the jobs had is used",
        within_s=30,
    )
    assert more


@pytest.mark.parametrize(
    "asked", [{"cpu": "3"}, {"memory": "2000Mi"}, {"gpus": 2}], ids=["cpu", "memory", "gpu"]
)
def test_a_refused_pod_is_bound_as_soon_as_a_native_job_ends(actors: Actors, asked: Any) -> None:
    for node in actors.cluster.spec.node_names:
        sbatch(actors, node, cpus=6, memory_mb=15_000, gpus=3)
    all_native_run(actors, 4)
    unmanaged(actors, "u", **asked)
    eventually(lambda: "Slurm's jobs leave too little room" in reason(actors, "u"), "refused")
    time.sleep(3)
    assert actors.node_of("u") is None
    actors.cluster.run_slurm("scancel", "--name", "native-node-3")
    assert actors.bound("u", within=10) == "node-3"
    assert_nothing_is_overcommitted(actors)
    assert CAPACITY_FREED in (actors.see("u") or {})["metadata"]["annotations"]


def test_daemonset_and_critical_pods_run_beside_any_native_job(actors: Actors) -> None:
    for node in actors.cluster.spec.node_names:
        sbatch(actors, node, cpus=8, memory_mb=1000, gpus=0)
    all_native_run(actors, 4)
    actors.cluster.kubectl("create", "-f", "-", stdin=DAEMON_SET)
    try:
        unmanaged(actors, "critical", priorityClassName="system-node-critical")
        unmanaged(actors, "plain")
        everywhere = set(actors.cluster.spec.node_names)
        eventually(lambda: agents(actors) == everywhere, "an agent on each node")
        assert actors.bound("critical", within=5)
        assert actors.node_of("plain") is None
    finally:
        actors.cluster.kubectl("delete", "daemonset", "agent", "--wait=false")


def agents(actors: Actors) -> set[str]:
    """Returns the Nodes of the DaemonSet's bound Pods."""
    pods = actors.pods().values()
    made = (pod for pod in pods if (pod["metadata"].get("labels") or {}).get("app") == "agent")
    return {node for pod in made if (node := pod["spec"].get("nodeName"))}


DAEMON_SET = """
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent, namespace: default}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec:
      containers:
      - {name: c, image: busybox, resources: {requests: {cpu: "1", memory: 100Mi}}}
"""


def test_pods_bound_concurrently_do_not_share_free_capacity(actors: Actors) -> None:
    for node in actors.cluster.spec.node_names:
        sbatch(actors, node, cpus=5, memory_mb=1000, gpus=0)
    all_native_run(actors, 4)
    for number in range(16):
        unmanaged(actors, f"u-{number}", cpu="2", memory="10Mi")
    deadline = time.monotonic() + 8
    while time.monotonic() < deadline:
        pods = assert_nothing_is_overcommitted(actors)
    assert len([p for p in pods.values() if p["spec"].get("nodeName")]) == 4


def test_managed_pod_moves_if_unmanaged_pods_use_its_allocation(quiet: Actors) -> None:
    """node-1 has 1 free CPU: a native job has 4 CPUs, and an unmanaged Pod has 3. Slurm knows only of
    the native job."""
    actors = quiet
    actors.cluster.start("extender", env={"SLURM_EXTENDER_UNBOUND_DEADLINE_S": "3"})
    try:
        for node in actors.cluster.spec.node_names:
            sbatch(actors, node, cpus=4 if node == "node-1" else 7, memory_mb=1000, gpus=0)
        all_native_run(actors, 4)
        unmanaged(actors, "u", cpu="3")
        assert actors.bound("u") == "node-1"
        actors.create("m", cpu="2", annotations={"partition": "main"})
        eventually(lambda: TAKEN in reason(actors, "m"), "refused")
        actors.cluster.run_slurm("scancel", "--name", "native-node-4")
        assert actors.bound("m") == "node-4"
        assert_nothing_is_overcommitted(actors)
    finally:
        actors.cluster.stop("extender")


def test_unmanaged_pod_shows_since_when_slurm_is_silent(actors: Actors) -> None:
    """slurmctld accepts connections, and does not answer. After five seconds, kube-scheduler would give
    up its call to the extender."""
    unmanaged(actors, "before")
    actors.bound("before")
    actors.cluster.pause("slurmctld")
    try:
        began = time.time()
        unmanaged(actors, "u")
        eventually(lambda: reason(actors, "u"), "the Pod says why it waits")
        told = set[str]()
        until = time.monotonic() + 12
        while time.monotonic() < until:
            told.add(reason(actors, "u"))
            time.sleep(0.2)
        assert actors.node_of("u") is None
        times = {time.strftime("%H:%M", time.gmtime(when)) for when in (began, began + 4)}
        named = {found for text in told for found in re.findall(SILENT, text)}
        assert len(named) == 1 <= len(named & times), told
        assert all(re.search(SILENT, text) for text in told), told
        assert len(told) <= 2, "one text by /bind and one by /filter"
        assert not any("Client.Timeout" in text for text in actors.events("u").values())
    finally:
        actors.cluster.resume("slurmctld")
    actors.bound("u", within=60)
