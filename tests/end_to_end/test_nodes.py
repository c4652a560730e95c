"""Tests of Nodes out of service: if one system closes a Node, the other system closes the Node, too. The
extender undoes no change of an administrator."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from deploy.local.errors import ClusterError
from tests.end_to_end.actors import Actors, Manifest, fetch
from tests.end_to_end.state_loss import lose_all_state
from tests.end_to_end.test_crashes import Doomed
from tests.eventually import eventually

pytestmark = pytest.mark.real

NODES = ("node-1", "node-2", "node-3", "node-4")
CONDITION = "slurm-extender.io/SlurmOutOfService"
TAINT = "slurm-extender.io/out-of-service"
PREFIX = "slurm-extender: "
CORDONED = PREFIX + "cordoned in Kubernetes"
BY_HAND = "disk is to be replaced"
OPEN = {"idle", "mixed", "allocated", "completing"}
"""States of a node that accepts jobs."""


@pytest.fixture(autouse=True)
def as_found(all_actors: Actors) -> Iterator[None]:
    """Puts all Nodes, and all nodes of Slurm, back into service after each test."""
    yield
    if not all_actors.cluster.is_running("extender"):
        all_actors.cluster.start("extender")
    all_actors.cluster.kubectl("uncordon", *NODES)
    for name, found in manifests(all_actors).items():
        for taint in found["spec"].get("taints") or ():
            all_actors.kubectl("taint", "node", name, f"{taint['key']}-")
        if conditions(found)["Ready"]["status"] != "True":
            readiness(all_actors, name, "True")
    for name, state in states(all_actors).items():
        if state not in OPEN:
            resume(all_actors, name)
    eventually(lambda: set(states(all_actors).values()) <= OPEN, "all nodes in service", 60)
    eventually(lambda: all(map(is_quiet, manifests(all_actors).values())), "all Nodes told", 60)


def is_quiet(found: Manifest) -> bool:
    return bool(conditions(found).get(CONDITION, {"reason": "InService"})["reason"] == "InService")


# Helpers for Slurm


def node(actors: Actors, name: str) -> tuple[str, str]:
    """Returns the state and the reason of a node in sinfo."""
    shown = actors.cluster.run_slurm("sinfo", "-h", "-N", "-n", name, "-o", "%T|%E").stdout
    state, _, reason = shown.splitlines()[0].partition("|")
    return state.rstrip("*"), "" if reason == "none" else reason


def states(actors: Actors) -> dict[str, str]:
    shown = actors.cluster.run_slurm("sinfo", "-h", "-N", "-o", "%N %T").stdout.splitlines()
    return {name: state.rstrip("*") for name, state in map(str.split, shown)}


def in_service(actors: Actors, name: str) -> bool:
    return node(actors, name)[0] in OPEN


def is_drained(actors: Actors, name: str, reason: str) -> bool:
    state, why = node(actors, name)
    return state in {"drained", "draining"} and why == reason


def drained(actors: Actors, name: str, reason: str = CORDONED) -> None:
    eventually(lambda: is_drained(actors, name, reason), f"{name} drained: {reason}", 30)


def resumed(actors: Actors, name: str) -> None:
    eventually(lambda: in_service(actors, name), f"{name} in service", 30)


def drain(actors: Actors, name: str, state: str = "DRAIN") -> None:
    actors.cluster.run_slurm(
        "scontrol", "update", f"NodeName={name}", f"State={state}", f"Reason={BY_HAND}"
    )


def resume(actors: Actors, name: str) -> None:
    """Resumes a node. RESUME fails if the node is not down or drained."""
    try:
        actors.cluster.run_slurm("scontrol", "update", f"NodeName={name}", "State=RESUME")
    except ClusterError:
        if not in_service(actors, name):
            raise


# Helpers for Kubernetes


def manifests(actors: Actors) -> dict[str, Manifest]:
    shown = json.loads(actors.cluster.kubectl("get", "nodes", "-o", "json").stdout)
    return {each["metadata"]["name"]: each for each in shown["items"]}


def conditions(found: Manifest) -> dict[str, Manifest]:
    return {each["type"]: each for each in found["status"]["conditions"]}


def says(actors: Actors, name: str, reason: str, *words: str) -> bool:
    told = conditions(manifests(actors)[name]).get(CONDITION, {"reason": "", "message": ""})
    return bool(told["reason"] == reason) and all(word in told["message"] for word in words)


def told(actors: Actors, name: str, reason: str, *words: str) -> None:
    eventually(lambda: says(actors, name, reason, *words), f"{name} says {reason}", 30)


def taints(actors: Actors, name: str) -> set[str]:
    return {taint["key"] for taint in manifests(actors)[name]["spec"].get("taints") or ()}


def set_condition(actors: Actors, name: str, **fields: str) -> None:
    patch = json.dumps({"status": {"conditions": [fields]}})
    actors.cluster.kubectl("patch", "node", name, "--subresource=status", "-p", patch)


def readiness(actors: Actors, name: str, status: str) -> None:
    set_condition(actors, name, type="Ready", status=status, reason="Test", message="said by a test")


def metrics(actors: Actors) -> str:
    port = actors.cluster.ports["extender-metrics"]
    return fetch(f"http://127.0.0.1:{port}/metrics").text


def ending(actors: Actors, name: str) -> bool:
    return bool(actors.cluster.run_slurm("squeue", "-h", "-t", "CG", "-w", name).stdout)


def test_node_is_not_resumed_while_a_job_is_ending_there(actors: Actors) -> None:
    """The job ignores SIGTERM, and ends after the test deletes a file. The job must end before Slurm
    gives up, because Slurm itself drains the node of a job that Slurm cannot kill."""
    wrap = 'trap "" TERM; touch /tmp/ignores-term; while [ -e /tmp/ignores-term ]; do sleep 0.2; done'
    job = ("sbatch", "--parsable", "-w", "node-1", "-n1", "--mem=100", "-o", "/dev/null", "--wrap", wrap)
    job_id = actors.cluster.run_slurm(*job, user="alice").stdout.strip()
    ignores = actors.cluster.directory / "slurm/tmp/ignores-term"
    eventually(ignores.exists, "it ignores SIGTERM", 30)
    actors.cluster.kubectl("cordon", "node-1")
    drained(actors, "node-1")
    actors.cluster.run_slurm("scancel", job_id)
    eventually(lambda: ending(actors, "node-1"), "it is ending", 30)
    actors.cluster.kubectl("uncordon", "node-1")
    told(actors, "node-1", "Resuming", "when no job is ending there")
    assert ending(actors, "node-1")
    assert is_drained(actors, "node-1", CORDONED)
    ignores.unlink()
    eventually(lambda: not ending(actors, "node-1"), "it has ended")
    resumed(actors, "node-1")
    told(actors, "node-1", "InService")


def test_cordon_drains_the_node_and_keeps_its_pods(actors: Actors) -> None:
    actors.create("p")
    name = actors.bound("p")
    actors.cluster.kubectl("cordon", name)
    drained(actors, name)
    told(actors, name, "DrainedForKubernetes", CORDONED)
    job = actors.job_of("p")
    assert job is not None
    assert job.state == "RUNNING"
    counted = 'slurm_extender_drained_nodes{cause="cordoned"} 1.0'
    eventually(lambda: counted in metrics(actors), "counted")
    actors.cluster.kubectl("uncordon", name)
    resumed(actors, name)
    told(actors, name, "InService")
    assert actors.node_of("p") == name


def test_node_is_drained_while_it_is_not_ready(actors: Actors) -> None:
    readiness(actors, "node-2", "Unknown")
    drained(actors, "node-2", PREFIX + "not ready in Kubernetes")
    readiness(actors, "node-2", "True")
    resumed(actors, "node-2")


def test_changes_by_an_administrator_in_slurm_stay(actors: Actors) -> None:
    """The administrator drains node-1 before the cordon, and node-2 after the cordon. The administrator
    also resumes node-3 and node-4. The extender has drained node-4 only recently, so for the extender,
    slurmctld may have lost the drain. The extender drains node-4 again."""
    drain(actors, "node-1")
    actors.cluster.kubectl("cordon", *NODES)
    for name in NODES[1:]:
        drained(actors, name)
        told(actors, name, "DrainedForKubernetes")
    drain(actors, "node-2")
    for name, minutes in (("node-3", -1), ("node-4", 1)):  # whatever the speed of the test
        since = (datetime.now(UTC) + timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")
        set_condition(actors, name, type=CONDITION, lastTransitionTime=since)
        resume(actors, name)
    told(actors, "node-3", "ResumedByHand", CORDONED)
    drained(actors, "node-4")
    actors.cluster.kill("extender")  # the next extender decides in the same way
    actors.cluster.start("extender")
    actors.cluster.kubectl("uncordon", "node-1", "node-2", "node-4")
    resumed(actors, "node-4")
    for name in ("node-1", "node-2"):
        assert is_drained(actors, name, BY_HAND)
        told(actors, name, "DrainedInSlurm", BY_HAND)
    assert in_service(actors, "node-3")

    actors.cluster.kubectl("uncordon", "node-3")
    told(actors, "node-3", "InService")
    actors.cluster.kubectl("cordon", "node-3")  # a second cordon is a new cause
    drained(actors, "node-3")


def test_drain_lost_with_the_state_of_slurm_is_repeated(actors: Actors) -> None:
    """slurmctld loses its state while no extender runs, so the next extender does not notice the
    loss."""
    actors.cluster.kubectl("cordon", "node-1")
    drained(actors, "node-1")
    told(actors, "node-1", "DrainedForKubernetes")
    since = (datetime.now(UTC) - timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    set_condition(actors, "node-1", type=CONDITION, lastTransitionTime=since)
    actors.cluster.kill("extender")
    lose_all_state(actors)
    actors.cluster.start("extender")
    drained(actors, "node-1")
    actors.cluster.kubectl("uncordon", "node-1")
    resumed(actors, "node-1")


@pytest.fixture
def may_taint(quiet: Actors) -> Iterator[Actors]:
    """Actors of a cluster with an extender that taints Nodes, and has the right to do so."""
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


def test_node_closed_in_slurm_gets_a_condition_and_a_taint(may_taint: Actors) -> None:
    """A taint of an administrator also drains the node, but the extender's own taint does not. So a
    change in one system does not come back from the other system."""
    actors = may_taint
    drain(actors, "node-1")
    drain(actors, "node-2", "DOWN")
    actors.cluster.kubectl("taint", "node", "node-3", "disk=broken:NoSchedule")
    actors.cluster.kubectl("taint", "node", "node-4", f"{TAINT}=mine:NoSchedule")
    told(actors, "node-1", "DrainedInSlurm", BY_HAND)
    told(actors, "node-2", "DownInSlurm", BY_HAND)
    drained(actors, "node-3", PREFIX + "tainted disk in Kubernetes")
    for name in ("node-1", "node-2"):
        eventually(lambda: TAINT in taints(actors, name), f"{name} tainted")  # noqa: B023
    told(actors, "node-3", "DrainedForKubernetes")
    assert taints(actors, "node-3") == {"disk"}

    for name in ("node-1", "node-2"):
        resume(actors, name)
        eventually(lambda: not taints(actors, name), f"{name} not tainted")  # noqa: B023
        told(actors, name, "InService")
    actors.cluster.kubectl("taint", "node", "node-3", "disk-")
    resumed(actors, "node-3")
    assert taints(actors, "node-4") == {TAINT}  # an administrator's taint
    assert in_service(actors, "node-4")


def test_drain_and_resume_are_completed_after_a_crash(quiet: Actors) -> None:
    actors = quiet
    doomed = Doomed(actors, "SlurmRest.drain_node:after", "SlurmRest.undrain_node:before")

    def seen(state: bool) -> bool:
        doomed.are_dead()
        return state

    actors.cluster.kubectl("cordon", "node-3")
    eventually(lambda: seen(is_drained(actors, "node-3", CORDONED)), "drained", 30)
    eventually(lambda: seen(says(actors, "node-3", "DrainedForKubernetes")), "told", 30)
    actors.cluster.kubectl("uncordon", "node-3")
    eventually(lambda: seen(in_service(actors, "node-3")), "resumed", 30)
    eventually(lambda: seen(says(actors, "node-3", "InService")), "told", 30)
    assert doomed.are_dead()


def test_pod_created_while_all_nodes_are_cordoned_is_placed_later(actors: Actors) -> None:
    actors.cluster.kubectl("cordon", *NODES)
    for name in NODES:
        drained(actors, name)
    actors.create("p")
    eventually(lambda: actors.condition("p").get("reason") == "NoEligibleNode", "p is told")
    actors.cluster.kubectl("uncordon", *NODES)
    actors.bound("p", within=60)
    assert actors.attempt("p") <= 2
