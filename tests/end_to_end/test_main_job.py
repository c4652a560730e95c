"""Tests of the main flow: a Pod is bound to the Node that Slurm chose, and each system learns of events
in the other system."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor, wait

import httpx
import pytest

from tests.end_to_end.actors import CONDITION, Actors, fetch, pod
from tests.eventually import eventually
from wellknown import number_list
from wellknown.allocation import Allocation
from wellknown.names import CAPACITY_FREED, DOMAIN

pytestmark = pytest.mark.real


def same_node(actors: Actors, name: str) -> bool:
    job = actors.job_of(name)
    return job is not None and job.state == "RUNNING" and job.node == actors.node_of(name)


def fill_all_nodes(actors: Actors) -> None:
    for number in range(4):
        actors.create(f"big-{number}", cpu="8")
    for number in range(4):
        actors.bound(f"big-{number}")


def test_kubernetes_release_is_supported_and_as_requested(actors: Actors) -> None:
    asked, found = actors.cluster.spec.kubernetes_release, actors.kubernetes()
    assert asked in ("", f"{found[0]}.{found[1]}")
    assert (1, 31) <= found <= (1, 37)


def test_a_pod_is_bound_to_the_node_that_slurm_chose(actors: Actors) -> None:
    actors.create("p", cpu="2", gpus=1)
    node = actors.bound("p")
    job = actors.job_of("p")
    assert job is not None
    assert (job.state, job.node) == ("RUNNING", node)
    annotations = (actors.see("p") or {})["metadata"]["annotations"]
    assert annotations["slurm-extender.io/job-id"] == str(job.id)
    allocation = Allocation.parse(annotations)
    assert allocation is not None
    assert allocation.gres.startswith("gpu:h100:1(IDX:")
    assert (len(number_list.expand(allocation.cores)), allocation.memory_mb) == (2, 100)


def test_plain_squeue_shows_different_names_of_pods(actors: Actors) -> None:
    """squeue shows only the first eight characters of a job's name."""
    for name in ("chat", "search"):
        actors.create(name)
        actors.bound(name)
    shown = actors.cluster.run_slurm("squeue").stdout.split()
    assert {actors.job_name(name)[:8] for name in ("chat", "search")} <= set(shown)
    assert len({actors.job_name(name)[:8] for name in ("chat", "search")}) == 2


def test_annotation_alone_makes_slurm_place_the_pod(actors: Actors) -> None:
    actors.apply(pod("p", scheduler="default-scheduler", annotations={"comment": "hello"}))
    actors.bound("p")
    job = actors.job_of("p")
    assert job is not None
    assert job.comment == "hello"


def test_job_has_the_annotations_and_requests_of_its_pod(actors: Actors) -> None:
    asked = {
        "comment": "a b",
        "user-id": "2001",
        "timeout": "90",
        "priority": "77",
        "excluded-nodes": "node-1,node-2",
        "current-working-dir": "/tmp",
        "partition": "main",
    }
    actors.create("p", cpu="1500m", memory="1000001Ki", gpus=2, annotations=asked)
    actors.bound("p")
    shown = actors.scontrol("p")
    assert shown["UserId"] == "alice(2001)"
    assert shown["GroupId"] == "alice(2001)"
    assert shown["TimeLimit"] == "00:02:00"
    assert shown["Priority"] == "77"
    assert shown["ExcNodeList"] == "node-[1-2]"
    assert shown["WorkDir"] == "/tmp"
    assert "cpu=2," in shown["AllocTRES"]
    assert "mem=977M" in shown["AllocTRES"]
    assert shown["TresPerNode"] == "gres/gpu:2"
    assert shown["Requeue"] == "0"


def test_the_whole_node_is_granted_to_an_exclusive_pod(actors: Actors) -> None:
    actors.create("p", annotations={"exclusive": "none"})
    actors.bound("p")
    assert actors.scontrol("p")["NumCPUs"] == "8"


def test_waiting_pod_shows_the_reason_and_starts_on_a_freed_node(actors: Actors) -> None:
    fill_all_nodes(actors)
    actors.create("next", cpu="8")
    waiting = actors.queued("next")
    eventually(lambda: actors.condition("next").get("reason") == "Resources", "reason shown")
    condition = actors.condition("next")
    assert condition["status"] == "False"
    assert f"Slurm job {waiting.id} has waited in partition main" in condition["message"]
    annotations = (actors.see("next") or {})["metadata"]["annotations"]
    assert annotations["slurm-extender.io/job-id"] == str(waiting.id)
    freed = actors.node_of("big-2")
    actors.delete("big-2")
    assert actors.bound("next") == freed
    assert same_node(actors, "next")
    assert actors.condition("next")["status"] == "True"


def test_a_deleted_pod_ends_its_job(actors: Actors) -> None:
    actors.create("p")
    actors.bound("p")
    actors.delete("p")
    actors.gone("p")
    eventually(lambda: actors.job_of("p") is None, "job ended")


def test_a_pod_deleted_while_it_waits_ends_its_job(actors: Actors) -> None:
    actors.create("all", annotations={"required-nodes": "node-1"}, cpu="8")
    actors.bound("all")
    actors.create("p", annotations={"required-nodes": "node-1"})
    actors.queued("p")
    actors.delete("p")
    eventually(lambda: actors.job_of("p") is None, "job ended")


def test_a_pod_that_succeeds_ends_its_job(actors: Actors) -> None:
    done = pod("p")
    actors.apply(done)
    actors.bound("p")
    actors.cluster.kubectl(
        "patch",
        "pod",
        actors.full("p"),
        "--subresource=status",
        "-p",
        '{"status": {"phase": "Succeeded"}}',
    )
    eventually(lambda: actors.job_of("p") is None, "job ended")


def test_a_cancelled_job_evicts_its_pod(actors: Actors) -> None:
    actors.create("p")
    actors.bound("p")
    actors.scancel("p")
    actors.gone("p", within=45)
    assert "was cancelled in Slurm" in actors.event("p", "SlurmJobCancelled")


def test_an_evicted_pod_carries_the_reason_while_it_ends(actors: Actors) -> None:
    actors.create("p", annotations={}, terminationGracePeriodSeconds=20)
    actors.cluster.kubectl(
        "patch", "pod", actors.full("p"), "-p", '{"metadata": {"finalizers": ["example.com/hold"]}}'
    )
    actors.bound("p")
    actors.scancel("p")
    eventually(lambda: actors.condition("p", "DisruptionTarget"), "condition")
    condition = actors.condition("p", "DisruptionTarget")
    assert (condition["status"], condition["reason"]) == ("True", "SlurmJobCancelled")
    actors.cluster.kubectl("patch", "pod", actors.full("p"), "-p", '{"metadata": {"finalizers": null}}')
    actors.gone("p")


def test_a_job_cancelled_in_the_queue_ends_its_pod(actors: Actors) -> None:
    actors.create("all", annotations={"required-nodes": "node-1"}, cpu="8")
    actors.bound("all")
    actors.create("p", annotations={"required-nodes": "node-1"})
    actors.queued("p")
    actors.scancel("p")
    actors.gone("p")


def test_job_excludes_nodes_that_kubernetes_rejects(actors: Actors) -> None:
    actors.create("p", nodeSelector={"kubernetes.io/hostname": "node-3"})
    assert actors.bound("p") == "node-3"
    assert same_node(actors, "p")


def test_pod_without_an_eligible_node_waits_and_shows_the_reason(actors: Actors) -> None:
    actors.create("p", nodeSelector={"disk": "none"})
    eventually(lambda: actors.condition("p").get("reason") == "NoEligibleNode", "reason shown")
    actors.cluster.kubectl("label", "node", "node-2", "disk=none")
    try:
        assert actors.bound("p") == "node-2"
    finally:
        actors.cluster.kubectl("label", "node", "node-2", "disk-")


def test_waiting_pod_does_not_start_on_a_cordoned_node(actors: Actors) -> None:
    fill_all_nodes(actors)
    actors.create("next", cpu="8")
    actors.queued("next")
    cordoned, other = actors.node_of("big-0"), actors.node_of("big-1")
    actors.cluster.kubectl("cordon", str(cordoned))
    try:
        eventually(lambda: actors.scontrol("next")["ExcNodeList"] == cordoned, "Slurm is told")
        actors.delete("big-0")
        actors.gone("big-0")
        actors.delete("big-1")
        assert actors.bound("next") == other
    finally:
        actors.cluster.kubectl("uncordon", str(cordoned))


def test_native_jobs_and_pods_share_a_node(actors: Actors) -> None:
    sbatch = (
        "sbatch",
        "-w",
        "node-1",
        "-n",
        "1",
        "-c",
        "5",
        "--gres=gpu:2",
        "--mem=1000",
        "-J",
        "native",
    )
    actors.cluster.run_slurm(*sbatch, "--wrap", "sleep 600", user="alice")
    eventually(lambda: actors.squeue()["native"].state == "RUNNING", "native job runs")
    actors.create("fits", cpu="3", gpus=2, annotations={"required-nodes": "node-1"})
    assert actors.bound("fits") == "node-1"
    actors.create("waits", cpu="1", gpus=1, annotations={"required-nodes": "node-1"})
    actors.queued("waits")
    actors.cluster.run_slurm("scancel", "--name", "native")
    assert actors.bound("waits") == "node-1"


def test_unmanaged_pod_is_left_alone(actors: Actors) -> None:
    actors.create("p", scheduler="default-scheduler")
    actors.bound("p")
    assert actors.squeue() == {}
    metadata = (actors.see("p") or {})["metadata"]
    ours = {key for key in metadata.get("annotations", {}) if key.startswith(DOMAIN)}
    assert ours <= {CAPACITY_FREED}  # the Pod may have waited for the end of a job
    assert (actors.see("p") or {})["spec"]["schedulerName"] == "default-scheduler"
    assert CONDITION not in {c["type"] for c in (actors.see("p") or {})["status"]["conditions"]}


def test_metrics_count_placeholders_effects_and_verbs(actors: Actors) -> None:
    actors.create("p")
    actors.bound("p")

    def metrics() -> str:
        return fetch(f"http://127.0.0.1:{actors.cluster.ports['extender-metrics']}/metrics").text

    eventually(
        lambda: 'slurm_extender_placeholders{state="Bound"} 1.0' in metrics(), "the Pod is counted"
    )
    seen = metrics()
    assert 'slurm_extender_effect_seconds_count{effect="Submit",outcome="done"}' in seen
    assert "slurm_extender_placement_seconds_count" in seen
    for verb in ("filter", "bind", "mutate"):
        assert f'slurm_extender_verb_seconds_count{{status="200",verb="{verb}"}}' in seen


def test_a_binding_under_way_is_answered_before_the_extender_ends(actors: Actors) -> None:
    cluster = actors.cluster
    cluster.pause("kube-scheduler")
    try:
        actors.create("p")
        node = eventually(lambda: _granted_node(actors), "granted")
        pod = actors.see("p") or {}
        call = {
            "PodName": actors.full("p"),
            "PodNamespace": "default",
            "PodUID": pod["metadata"]["uid"],
            "Node": node,
        }
        url = f"http://127.0.0.1:{cluster.ports['extender-scheduler']}/scheduler/bind"
        cluster.pause("slurmrestd")
        with ThreadPoolExecutor(1) as other:
            answer = other.submit(httpx.post, url, json=call, timeout=20)
            assert not wait([answer], timeout=0.5).done  # /bind waits for Slurm
            os.kill(cluster.pid("extender"), signal.SIGTERM)
            assert not wait([answer], timeout=0.5).done
            cluster.resume("slurmrestd")
            assert answer.result().json() == {"Error": ""}
        assert cluster.wait_exit("extender") == 0
        assert actors.node_of("p") == node
    finally:
        cluster.resume("slurmrestd")
        cluster.resume("kube-scheduler")
        if not cluster.is_running("extender"):
            cluster.start("extender")


def _granted_node(actors: Actors) -> str | None:
    annotations = (actors.see("p") or {})["metadata"]["annotations"]
    node = annotations.get("slurm-extender.io/node")
    return str(node) if node else None
