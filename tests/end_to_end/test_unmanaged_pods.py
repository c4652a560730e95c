"""Native jobs, Pods of ours and Pods that Slurm knows nothing of, on the same nodes: nobody's room is
given away twice.

Guaranteed is the order "job first": what Slurm runs is never bound upon. A native job that Slurm starts
after an unmanaged Pod was bound may land on top of it, since Slurm does not know of that Pod. So here
native jobs start before the unmanaged Pods that compete with them.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from deploy.local.spec import ClusterSpec
from extender.request.resources import effective_requests
from extender.unmanaged.capacity_watch import TAKEN
from tests.end_to_end.people import Manifest, People, eventually
from wellknown.names import CAPACITY_FREED

pytestmark = pytest.mark.real

GPU = "nvidia.com/gpu"
MEBIBYTE = 1 << 20


def capacity(spec: ClusterSpec) -> Counter[str]:
    return Counter(
        {"cpu": spec.cpus_per_node, "memory": spec.memory_mb * MEBIBYTE, GPU: spec.gpus_per_node}
    )


def sbatch(
    people: People, node: str, *, cpus: int, memory_mb: int, gpus: int, name: str = "native"
) -> None:
    """A native job of alice's on one node; it runs when this returns."""
    asked = (f"-c{cpus}", f"--mem={memory_mb}", f"--gres=gpu:{gpus}", f"--job-name={name}-{node}")
    people.cluster.run_slurm("sbatch", "-w", node, "-n1", *asked, "--wrap", "sleep 900", user="alice")


def native_jobs(people: People) -> Iterator[tuple[str, Counter[str]]]:
    """What alice's jobs have, node by node."""
    shown = people.cluster.run_slurm("scontrol", "-o", "show", "job").stdout
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


def used(people: People, pods: dict[str, Manifest]) -> dict[str, Counter[str]]:
    """What native jobs and all bound Pods have of each node."""
    found = {name: Counter[str]() for name in people.cluster.spec.node_names}
    for node, has in native_jobs(people):
        found[node].update(has)
    for manifest in pods.values():
        node = manifest["spec"].get("nodeName")
        if node and manifest["status"]["phase"] not in ("Succeeded", "Failed"):
            found[node].update({k: float(v) for k, v in effective_requests(manifest["spec"]).items()})
    return found


def assert_nothing_is_overcommitted(people: People) -> dict[str, Manifest]:
    """The Pods are looked at first: what they have must still be free of jobs afterwards."""
    pods = people.pods()
    has = capacity(people.cluster.spec)
    for node, amounts in used(people, pods).items():
        over = {name: amount for name, amount in amounts.items() if amount > has[name]}
        assert not over, f"{node} has {dict(has)}, but is used by {dict(amounts)}"
    return pods


def unmanaged(people: People, name: str, **given: Any) -> None:
    people.create(name, scheduler="default-scheduler", **given)


def reason(people: People, name: str) -> str:
    return people.condition(name, "PodScheduled").get("message", "")


def all_native_run(people: People, count: int) -> None:
    eventually(lambda: len(list(native_jobs(people))) == count, "native jobs run")


def test_a_mixed_workload_never_overcommits_a_node(people: People) -> None:
    """Four nodes of 8 CPUs, 16,000 MB and 4 GPUs; each native job is short of another resource."""
    sbatch(people, "node-1", cpus=6, memory_mb=1000, gpus=0)
    sbatch(people, "node-2", cpus=1, memory_mb=15_000, gpus=0)
    sbatch(people, "node-3", cpus=1, memory_mb=1000, gpus=4)
    all_native_run(people, 3)
    names = [f"u-{number}" for number in range(30)]
    for number, name in enumerate(names):
        if number % 3 == 0:
            people.create(f"m-{number}", cpu="1", memory="500Mi", gpus=number % 2)
        unmanaged(people, name, cpu="500m", memory="1500Mi", gpus=int(number % 3 == 0))
    deadline = time.monotonic() + 15
    while time.monotonic() < deadline:
        pods = assert_nothing_is_overcommitted(people)
    bound = [name for name in names if pods[people.full(name)]["spec"].get("nodeName")]
    assert 5 <= len(bound) < len(names), "some fit, and not all"
    jobs = people.squeue()
    for name in names:
        assert people.job_name(name) not in jobs
    people.cluster.run_slurm("scancel", "-u", "alice")
    eventually(lambda: not list(native_jobs(people)), "native jobs end")
    more = eventually(
        lambda: (
            len(
                [
                    p
                    for p in assert_nothing_is_overcommitted(people).values()
                    if p["spec"].get("nodeName")
                ]
            )
            > len([p for p in pods.values() if p["spec"].get("nodeName")])
        ),
        "what the jobs had is used",
        within=30,
    )
    assert more


@pytest.mark.parametrize(
    "asked", [{"cpu": "3"}, {"memory": "2000Mi"}, {"gpus": 2}], ids=["cpu", "memory", "gpu"]
)
def test_a_refused_pod_is_bound_as_soon_as_a_native_job_ends(people: People, asked: Any) -> None:
    for node in people.cluster.spec.node_names:
        sbatch(people, node, cpus=6, memory_mb=15_000, gpus=3)
    all_native_run(people, 4)
    unmanaged(people, "u", **asked)
    eventually(lambda: "Slurm's jobs leave too little room" in reason(people, "u"), "refused")
    time.sleep(3)
    assert people.node_of("u") is None
    people.cluster.run_slurm("scancel", "--name", "native-node-3")
    assert people.bound("u", within=10) == "node-3"
    assert_nothing_is_overcommitted(people)
    assert CAPACITY_FREED in (people.see("u") or {})["metadata"]["annotations"]


def test_a_daemon_sets_pod_and_a_critical_one_run_beside_whatever_slurm_runs(people: People) -> None:
    for node in people.cluster.spec.node_names:
        sbatch(people, node, cpus=8, memory_mb=1000, gpus=0)
    all_native_run(people, 4)
    people.cluster.kubectl("create", "-f", "-", stdin=DAEMON_SET)
    try:
        unmanaged(people, "critical", priorityClassName="system-node-critical")
        unmanaged(people, "plain")
        everywhere = set(people.cluster.spec.node_names)
        eventually(lambda: agents(people) == everywhere, "an agent on each node")
        assert people.bound("critical", within=5)
        assert people.node_of("plain") is None
    finally:
        people.cluster.kubectl("delete", "daemonset", "agent", "--wait=false")


def agents(people: People) -> set[str]:
    """The Nodes that the DaemonSet's Pods are bound to."""
    pods = people.pods().values()
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


def test_pods_bound_at_the_same_time_do_not_count_on_the_same_room(people: People) -> None:
    for node in people.cluster.spec.node_names:
        sbatch(people, node, cpus=5, memory_mb=1000, gpus=0)
    all_native_run(people, 4)
    for number in range(16):
        unmanaged(people, f"u-{number}", cpu="2", memory="10Mi")
    deadline = time.monotonic() + 8
    while time.monotonic() < deadline:
        pods = assert_nothing_is_overcommitted(people)
    assert len([p for p in pods.values() if p["spec"].get("nodeName")]) == 4


def test_a_pod_of_ours_moves_on_where_unmanaged_pods_have_what_slurm_gave_it(quiet: People) -> None:
    """node-1 has 1 CPU left: a native job has 4 and an unmanaged Pod 3. Slurm knows of the 4 only."""
    people = quiet
    people.cluster.start("extender", env={"SLURM_EXTENDER_UNBOUND_DEADLINE_S": "3"})
    try:
        for node in people.cluster.spec.node_names:
            sbatch(people, node, cpus=4 if node == "node-1" else 7, memory_mb=1000, gpus=0)
        all_native_run(people, 4)
        unmanaged(people, "u", cpu="3")
        assert people.bound("u") == "node-1"
        people.create("m", cpu="2", annotations={"partition": "main"})
        eventually(lambda: TAKEN in reason(people, "m"), "refused")
        people.cluster.run_slurm("scancel", "--name", "native-node-4")
        assert people.bound("m") == "node-4"
        assert_nothing_is_overcommitted(people)
    finally:
        people.cluster.stop("extender")


def test_while_slurm_does_not_answer_nothing_is_put_on_its_nodes(people: People) -> None:
    unmanaged(people, "before")
    people.bound("before")
    people.cluster.kill("slurmctld")
    try:
        unmanaged(people, "u")
        time.sleep(4)
        assert people.node_of("u") is None
    finally:
        people.cluster.start("slurmctld")
    people.bound("u", within=60)
