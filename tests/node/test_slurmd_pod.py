"""Tests of slurmd in a Pod that a real kubelet runs (docs/concepts/pools.md). slurmd joins Slurm, native
jobs run beside Pods of the extender, and drains, deletions and roll-outs wait for the jobs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from deploy.local.chart import POOLS_NAMESPACE
from deploy.local.guest.nodes import GPUS
from deploy.local.spec import DEFAULT_RELEASE, GUEST, GUEST_CPUS
from tests.end_to_end.actors import Actors
from tests.eventually import eventually
from tests.node.conftest import Guest
from tests.node.pool_node import FEATURE, SLURMD_POD, PoolNode
from tests.node.real_node import STARTS_WITHIN_S, Opened, open_each

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deploy.local.cluster import Cluster
    from tests.node.evidence import Evidence

pytestmark = [pytest.mark.node, pytest.mark.timeout(600)]

GUESTS = (
    Guest(DEFAULT_RELEASE, "cgroupfs", in_pool=True),
    Guest("24.11", "systemd", in_pool=True),
)
_LINES = (
    "for second in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do echo line $second; sleep 1; done; echo over"
)
_ALL_LINES = 15


@pytest.fixture(scope="module")
def all_nodes(cluster: Cluster) -> Iterator[PoolNode]:
    actors = Actors(cluster)
    yield PoolNode(actors)
    actors.close()


def runs(node: PoolNode, script: str, *options: str) -> int:
    """Submits a job of the user alice, and returns the job id after the job has written a line."""
    job = node.sbatch(script, "-n1", "--mem=100", *options)
    eventually(lambda: node.output(job), f"the job writes: {node.job_state(job)}", STARTS_WITHIN_S)
    return job


def is_complete(node: PoolNode, job: int) -> None:
    """Waits until a job of `_LINES` has written all lines."""
    eventually(lambda: node.completed(job), "the job ends by itself", STARTS_WITHIN_S)
    lines = node.output(job).splitlines()
    assert lines == [*(f"line {number}" for number in range(1, _ALL_LINES + 1)), "over"]


def test_node_takes_jobs_soon_after_the_slurmd_container_starts(
    node: PoolNode, evidence: Evidence
) -> None:
    before = node.revision()
    node.write("told anew", slurm={"weight": 7})
    eventually(lambda: node.revision() not in ("", before), "another Pod", STARTS_WITHIN_S)
    eventually(node.takes_jobs, "the node takes jobs", STARTS_WITHIN_S)
    now = float(node.guest.run("date +%s.%N").output)
    evidence.slurmd_joined_s.append(round(now - node.started(), 1))
    assert now - node.started() < 5
    shown = node.cluster.run_slurm("sinfo", "-hN", "-n", GUEST, "-o", "%w %f %c %G").stdout.split()
    assert shown == ["7", FEATURE, str(GUEST_CPUS), f"gpu:h100:{len(GPUS)}"]


def test_native_jobs_and_pods_have_their_own_devices_and_cores(node: PoolNode) -> None:
    # containerd 1.7 runs without NRI: a Pod has all devices, or none (docs/concepts/devices.md)
    gpus = 3 if node.cluster.spec.release == DEFAULT_RELEASE else 0
    node.run("pod", gpus=gpus, cpu="2")
    pods = node.granted("pod")
    node.has("pod", pods)
    script = f"{open_each()}\ngrep Cpus_allowed_list /proc/self/status\nsleep 60"
    job = runs(node, script, "--gres=gpu:2")
    eventually(lambda: "Cpus_allowed_list" in node.output(job), "the job has tried", STARTS_WITHIN_S)
    own = node.gpus_of_job(job)
    assert Opened.of(node.output(job)).numbers == own
    assert len(own) == 2
    assert own.isdisjoint(pods)
    assert node.output(job).split()[-1] == node.cpus_of_job(job)
    assert node.output(job).split()[-1] not in node.allocation("pod").cores
    assert node.jobs_in_slurmd_pod()
    node.has("pod", pods)


def test_native_job_starts_after_the_earlier_pod_has_ended(node: PoolNode) -> None:
    """The gate makes the native job wait. slurmd gets the gate from slurmctld, with the
    configuration."""
    node.run("pod", gpus=len(GPUS), terminationGracePeriodSeconds=15)
    uid = node.uid("pod")
    job = node.sbatch(open_each(), "-n1", "--mem=100", f"--gres=gpu:{len(GPUS)}")
    node.actors.scancel("pod")
    eventually(
        lambda: node.job_state(job) != "PENDING", "Slurm gives the job the devices", STARTS_WITHIN_S
    )
    waited = 0
    while not node.output(job):
        waited += bool(node.processes_of(uid))
        time.sleep(0.2)
    assert waited
    assert not node.processes_of(uid)
    eventually(lambda: node.completed(job), "the job ends", STARTS_WITHIN_S)
    assert len(Opened.of(node.output(job)).numbers) == len(GPUS)


def test_srun_starts_ranks_and_gets_their_output(node: PoolNode) -> None:
    size = ("-n", str(GUEST_CPUS), "--mem-per-cpu=50")
    said = node.cluster.run_slurm("srun", *size, "sh", "-c", "echo rank $SLURM_PROCID", user="alice")
    assert sorted(said.stdout.splitlines()) == [f"rank {number}" for number in range(GUEST_CPUS)]


def test_job_continues_while_the_pod_template_changes(node: PoolNode) -> None:
    job = runs(node, _LINES)
    node.write("second")
    while not node.completed(job):
        assert node.said() in ("first", "second")
        assert node.said() == "first" or node.completed(job)
        time.sleep(0.5)
    is_complete(node, job)
    node.serves("second")


def test_steps_outlive_their_slurmd_and_the_agent(node: PoolNode) -> None:
    time.sleep(max(0.0, 61 - float(node.guest.run("date +%s").output) + node.started()))
    job = runs(node, _LINES)
    node.cluster.kill("node-agent")
    node.guest.run("pkill -KILL -x slurmd")
    node.cluster.start("node-agent")
    is_complete(node, job)
    pod = node.slurmd_pod()
    assert pod is not None
    assert pod["status"]["containerStatuses"][0]["restartCount"] == 0
    eventually(node.takes_jobs, "the node takes jobs", STARTS_WITHIN_S)


def test_crashing_template_stops_the_roll_out_until_it_is_reverted(node: PoolNode) -> None:
    node.write("crashes", command=["sh", "-c", "echo no such library; exit 3"])
    words = "no such library"
    eventually(
        lambda: words in node.actors.problem("roll-outs"), "it stops, with words", STARTS_WITHIN_S
    )
    assert not node.takes_jobs()
    node.write()
    node.serves()
    assert not node.actors.problem("roll-outs")


def test_kubectl_drain_waits_for_jobs(node: PoolNode) -> None:
    job = runs(node, _LINES)
    options = ("--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=100s")
    node.cluster.kubectl("drain", GUEST, *options)
    is_complete(node, job)
    assert node.slurmd_pod() is None
    node.cluster.kubectl("uncordon", GUEST)
    node.serves()


def test_deleted_slurmd_pod_ends_after_its_jobs(node: PoolNode) -> None:
    before = node.slurmd_pod()
    assert before is not None
    job = runs(node, _LINES)
    node.cluster.kubectl("delete", "pod", "-n", POOLS_NAMESPACE, SLURMD_POD, "--wait=false")
    is_complete(node, job)

    def is_another() -> bool:
        now = node.slurmd_pod()
        return now is not None and now["metadata"]["uid"] != before["metadata"]["uid"]

    eventually(is_another, "another Pod", STARTS_WITHIN_S)
    node.serves()


def test_power_saving_of_slurm_ends_and_recreates_the_slurmd_pod(
    node: PoolNode, evidence: Evidence
) -> None:
    node.cluster.run_slurm("scontrol", "update", f"NodeName={GUEST}", "State=POWER_DOWN")
    eventually(lambda: node.slurmd_pod() is None, "its Pod ended", STARTS_WITHIN_S)
    eventually(lambda: node.state().endswith("~"), "powered down", STARTS_WITHIN_S)
    began = float(node.guest.run("date +%s.%N").output)
    job = runs(node, "date +%s.%N")
    first = float(node.output(job).split()[0])
    evidence.resumed_to_first_line_s.append(round(first - began, 1))
    eventually(lambda: node.completed(job), "the job that woke it", STARTS_WITHIN_S)
    node.serves()
