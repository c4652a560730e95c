"""What one system takes out of service, the other does too; what a person did, nobody undoes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import httpx
import pytest

from deploy.local.errors import ClusterError
from tests.end_to_end.people import Manifest, People, eventually
from tests.end_to_end.test_crashes import restart_if_dead, start_doomed

pytestmark = pytest.mark.real

NODES = ("node-1", "node-2", "node-3", "node-4")
CONDITION = "slurm-extender.io/SlurmOutOfService"
TAINT = "slurm-extender.io/out-of-service"
PREFIX = "slurm-extender: "
CORDONED = PREFIX + "cordoned in Kubernetes"
BY_HAND = "disk is to be replaced"
OPEN = {"idle", "mixed", "allocated", "completing"}
"""States of a node that takes jobs."""


@pytest.fixture(autouse=True)
def as_found(everybody: People) -> Iterator[None]:
    """All Nodes and nodes in service before the next test, whatever became of this one."""
    yield
    if not everybody.cluster.is_running("extender"):
        everybody.cluster.start("extender")
    everybody.cluster.kubectl("uncordon", *NODES)
    for name, found in manifests(everybody).items():
        for taint in found["spec"].get("taints") or ():
            everybody.kubectl("taint", "node", name, f"{taint['key']}-")
        if conditions(found)["Ready"]["status"] != "True":
            readiness(everybody, name, "True")
    for name, state in states(everybody).items():
        if state not in OPEN:
            resume(everybody, name)
    eventually(lambda: set(states(everybody).values()) <= OPEN, "all nodes in service", 60)
    eventually(lambda: all(map(is_quiet, manifests(everybody).values())), "all Nodes told", 60)


def is_quiet(found: Manifest) -> bool:
    return bool(conditions(found).get(CONDITION, {"reason": "InService"})["reason"] == "InService")


# Slurm's side


def node(people: People, name: str) -> tuple[str, str]:
    """A node's state and reason, as sinfo has them."""
    shown = people.cluster.run_slurm("sinfo", "-h", "-N", "-n", name, "-o", "%T|%E").stdout
    state, _, reason = shown.splitlines()[0].partition("|")
    return state.rstrip("*"), "" if reason == "none" else reason


def states(people: People) -> dict[str, str]:
    shown = people.cluster.run_slurm("sinfo", "-h", "-N", "-o", "%N %T").stdout.splitlines()
    return {name: state.rstrip("*") for name, state in map(str.split, shown)}


def in_service(people: People, name: str) -> bool:
    return node(people, name)[0] in OPEN


def is_drained(people: People, name: str, reason: str) -> bool:
    state, why = node(people, name)
    return state in {"drained", "draining"} and why == reason


def drained(people: People, name: str, reason: str = CORDONED) -> None:
    eventually(lambda: is_drained(people, name, reason), f"{name} drained: {reason}", 30)


def resumed(people: People, name: str) -> None:
    eventually(lambda: in_service(people, name), f"{name} in service", 30)


def drain(people: People, name: str, state: str = "DRAIN") -> None:
    people.cluster.run_slurm(
        "scontrol", "update", f"NodeName={name}", f"State={state}", f"Reason={BY_HAND}"
    )


def resume(people: People, name: str) -> None:
    """RESUME is for a node that is down or drained, and fails on others."""
    try:
        people.cluster.run_slurm("scontrol", "update", f"NodeName={name}", "State=RESUME")
    except ClusterError:
        if not in_service(people, name):
            raise


# Kubernetes' side


def manifests(people: People) -> dict[str, Manifest]:
    shown = json.loads(people.cluster.kubectl("get", "nodes", "-o", "json").stdout)
    return {each["metadata"]["name"]: each for each in shown["items"]}


def conditions(found: Manifest) -> dict[str, Manifest]:
    return {each["type"]: each for each in found["status"]["conditions"]}


def says(people: People, name: str, reason: str, *words: str) -> bool:
    told = conditions(manifests(people)[name]).get(CONDITION, {"reason": "", "message": ""})
    return bool(told["reason"] == reason) and all(word in told["message"] for word in words)


def told(people: People, name: str, reason: str, *words: str) -> None:
    eventually(lambda: says(people, name, reason, *words), f"{name} says {reason}", 30)


def taints(people: People, name: str) -> set[str]:
    return {taint["key"] for taint in manifests(people)[name]["spec"].get("taints") or ()}


def set_condition(people: People, name: str, **fields: str) -> None:
    patch = json.dumps({"status": {"conditions": [fields]}})
    people.cluster.kubectl("patch", "node", name, "--subresource=status", "-p", patch)


def readiness(people: People, name: str, status: str) -> None:
    set_condition(people, name, type="Ready", status=status, reason="Test", message="said by a test")


def metrics(people: People) -> str:
    port = people.cluster.ports["extender-metrics"]
    return httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=5).text


def ending(people: People, name: str) -> bool:
    return bool(people.cluster.run_slurm("squeue", "-h", "-t", "CG", "-w", name).stdout)


def test_a_node_is_not_resumed_while_a_job_may_have_failed_to_end_there(people: People) -> None:
    """Slurm kills it after KillWait, here; what it cannot kill it drains the node for."""
    wrap = 'trap "" TERM; touch /tmp/ignores-term; sleep 300'
    job = ("sbatch", "--parsable", "-w", "node-1", "-n1", "--mem=100", "-o", "/dev/null", "--wrap", wrap)
    job_id = people.cluster.run_slurm(*job, user="alice").stdout.strip()
    ignores = people.cluster.directory / "slurm/tmp/ignores-term"
    eventually(ignores.exists, "it ignores SIGTERM", 30)
    people.cluster.kubectl("cordon", "node-1")
    drained(people, "node-1")
    people.cluster.run_slurm("scancel", job_id)
    eventually(lambda: ending(people, "node-1"), "it is ending", 30)
    people.cluster.kubectl("uncordon", "node-1")
    told(people, "node-1", "Resuming", "when no job is ending there")
    assert ending(people, "node-1")
    assert is_drained(people, "node-1", CORDONED)
    eventually(lambda: not ending(people, "node-1"), "it has ended", 60)
    resumed(people, "node-1")
    told(people, "node-1", "InService")
    ignores.unlink()


def test_a_cordon_drains_the_node_and_leaves_what_runs_there(people: People) -> None:
    people.create("p")
    name = people.bound("p")
    people.cluster.kubectl("cordon", name)
    drained(people, name)
    told(people, name, "DrainedForKubernetes", CORDONED)
    job = people.job_of("p")
    assert job is not None
    assert job.state == "RUNNING"
    counted = 'slurm_extender_drained_nodes{cause="cordoned"} 1.0'
    eventually(lambda: counted in metrics(people), "counted")
    people.cluster.kubectl("uncordon", name)
    resumed(people, name)
    told(people, name, "InService")
    assert people.node_of("p") == name


def test_a_node_that_is_not_ready_is_drained_until_it_is(people: People) -> None:
    readiness(people, "node-2", "Unknown")
    drained(people, "node-2", PREFIX + "not ready in Kubernetes")
    readiness(people, "node-2", "True")
    resumed(people, "node-2")


def test_what_a_person_did_in_slurm_stays(people: People) -> None:
    """node-1 is drained by hand before it is cordoned, node-2 after; node-3 is resumed by hand, and so
    is node-4, before our drain of it counts as saved."""
    drain(people, "node-1")
    people.cluster.kubectl("cordon", *NODES)
    for name in NODES[1:]:
        drained(people, name)
        told(people, name, "DrainedForKubernetes")
    drain(people, "node-2")
    for name, minutes in (("node-3", -1), ("node-4", 1)):  # however long all this takes here
        since = (datetime.now(UTC) + timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")
        set_condition(people, name, type=CONDITION, lastTransitionTime=since)
        resume(people, name)
    told(people, "node-3", "ResumedByHand", CORDONED)
    drained(people, "node-4")
    people.cluster.kill("extender")  # its successor knows no less
    people.cluster.start("extender")
    people.cluster.kubectl("uncordon", "node-1", "node-2", "node-4")
    resumed(people, "node-4")
    for name in ("node-1", "node-2"):
        assert is_drained(people, name, BY_HAND)
        told(people, name, "DrainedInSlurm", BY_HAND)
    assert in_service(people, "node-3")

    people.cluster.kubectl("uncordon", "node-3")
    told(people, "node-3", "InService")
    people.cluster.kubectl("cordon", "node-3")  # another cordon is another cause
    drained(people, "node-3")


@pytest.fixture
def may_taint(quiet: People) -> Iterator[People]:
    """An extender that taints Nodes, and may."""
    create = ("create", "clusterrole", "may-taint", "--verb=patch", "--resource=nodes")
    bind = ("create", "clusterrolebinding", "may-taint", "--clusterrole=may-taint")
    quiet.cluster.kubectl(*create)
    quiet.cluster.kubectl(*bind, "--user=slurm-extender")
    drain_settings = {"SLURM_EXTENDER_TAINT_NODES": "true", "SLURM_EXTENDER_DRAIN_TAINTS": "disk,gpu"}
    quiet.cluster.start("extender", env=drain_settings)
    yield quiet
    quiet.cluster.kill("extender")
    for kind in ("clusterrole", "clusterrolebinding"):
        quiet.cluster.kubectl("delete", kind, "may-taint")


def test_what_is_closed_in_slurm_is_told_and_tainted_on_the_node(may_taint: People) -> None:
    """And a taint drains, but not ours: neither system answers to its own echo."""
    people = may_taint
    drain(people, "node-1")
    drain(people, "node-2", "DOWN")
    people.cluster.kubectl("taint", "node", "node-3", "disk=broken:NoSchedule")
    people.cluster.kubectl("taint", "node", "node-4", f"{TAINT}=mine:NoSchedule")
    told(people, "node-1", "DrainedInSlurm", BY_HAND)
    told(people, "node-2", "DownInSlurm", BY_HAND)
    drained(people, "node-3", PREFIX + "tainted disk in Kubernetes")
    for name in ("node-1", "node-2"):
        eventually(lambda: TAINT in taints(people, name), f"{name} tainted")  # noqa: B023
    told(people, "node-3", "DrainedForKubernetes")
    assert taints(people, "node-3") == {"disk"}

    for name in ("node-1", "node-2"):
        resume(people, name)
        eventually(lambda: not taints(people, name), f"{name} not tainted")  # noqa: B023
        told(people, name, "InService")
    people.cluster.kubectl("taint", "node", "node-3", "disk-")
    resumed(people, "node-3")
    assert taints(people, "node-4") == {TAINT}  # a person's
    assert in_service(people, "node-4")


@pytest.mark.parametrize("point", ["SlurmRest.drain_node:after", "SlurmRest.undrain_node:before"])
def test_a_crash_in_between_leaves_nothing_half_done(quiet: People, point: str) -> None:
    people = quiet
    start_doomed(people, point)
    died = False

    def seen(state: bool) -> bool:
        nonlocal died
        died = restart_if_dead(people) or died
        return state

    people.cluster.kubectl("cordon", "node-3")
    eventually(lambda: seen(is_drained(people, "node-3", CORDONED)), "drained", 30)
    eventually(lambda: seen(says(people, "node-3", "DrainedForKubernetes")), "told", 30)
    people.cluster.kubectl("uncordon", "node-3")
    eventually(lambda: seen(in_service(people, "node-3")), "resumed", 30)
    eventually(lambda: seen(says(people, "node-3", "InService")), "told", 30)
    assert died


def test_a_pod_that_comes_while_every_node_is_cordoned_is_placed_after(people: People) -> None:
    people.cluster.kubectl("cordon", *NODES)
    for name in NODES:
        drained(people, name)
    people.create("p")
    eventually(lambda: people.condition("p").get("reason") == "NoEligibleNode", "p is told")
    people.cluster.kubectl("uncordon", *NODES)
    people.bound("p", within=60)
    assert people.attempt("p") <= 2
