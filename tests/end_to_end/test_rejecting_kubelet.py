"""Test of a kubelet that rejects every Pod: the extender closes the Node for a while, and writes a
condition with the reason."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.end_to_end import brief_extender
from tests.end_to_end.actors import Actors
from tests.end_to_end.test_nodes import conditions, in_service, manifests, metrics, node
from tests.eventually import eventually

pytestmark = pytest.mark.real

PODS_REJECTED = "slurm-extender.io/PodsRejected"
NO_DEVICE = (
    "Pod was rejected: Allocate failed due to no healthy devices present; cannot allocate unhealthy"
    " devices nvidia.com/gpu, which is unexpected"
)
SETTINGS = {"SLURM_EXTENDER_DRAIN_CONDITIONS": PODS_REJECTED}


@pytest.fixture
def kubelets(quiet: Actors) -> Iterator[Actors]:
    """Actors of the test. The Pod author also plays the kubelets."""
    quiet.cluster.stop("kwok")
    quiet.cluster.start("extender", argv=brief_extender.ARGV, env=SETTINGS)
    yield quiet
    quiet.cluster.stop("extender")
    quiet.cluster.start("kwok")


def decide(actors: Actors, name: str, broken: str) -> str:
    """Plays the kubelet of the Pod's Node: starts the Pod, or rejects the Pod on the broken Node.
    Returns the Node."""
    chosen, running = actors.bound(name), {"phase": "Running"}
    failed = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": NO_DEVICE}
    patch = json.dumps({"status": failed if chosen == broken else running})
    patched = actors.kubectl("patch", "pod", actors.full(name), "--subresource=status", "-p", patch)
    assert patched.returncode == 0, patched.stderr
    return chosen


def condition(actors: Actors, name: str) -> str:
    told = conditions(manifests(actors)[name]).get(PODS_REJECTED)
    return "" if told is None else f"{told['status']} {told['reason']} {told['message']}"


def closed(actors: Actors, closed_to: str) -> float:
    lines = metrics(actors).splitlines()
    name = f'slurm_extender_pods_rejecting_nodes{{closed_to="{closed_to}"}}'
    return float(next(line.split()[-1] for line in lines if line.startswith(name)))


def test_a_node_whose_kubelet_rejects_every_pod_is_closed_and_opened(kubelets: Actors) -> None:
    whole = {"exclusive": "none"}
    kubelets.create("serve-0", gpus=1, annotations=whole)
    broken = kubelets.bound("serve-0")
    nodes = [decide(kubelets, "serve-0", broken)]
    while nodes[-1] == broken and len(nodes) < 10:
        name = f"serve-{len(nodes)}"
        # While the job of the rejected Pod completes, Slurm chooses another node.
        eventually(lambda: node(kubelets, broken)[0] == "idle", "the rejected Pod's job has ended")
        kubelets.create(name, gpus=1, annotations=whole)
        nodes.append(decide(kubelets, name, broken))
    assert nodes.count(broken) == 3, nodes
    eventually(lambda: closed(kubelets, "similar") == 1, "counted")
    assert closed(kubelets, "all") == 0
    assert condition(kubelets, broken) == ""
    eventually(lambda: events_about(kubelets, broken), "the Node has an Event")

    of_alice = whole | {"required-nodes": broken, "user-id": "2001"}
    kubelets.create("other", gpus=1, annotations=of_alice)
    assert decide(kubelets, "other", broken) == broken  # another user's Pod
    words = (
        f"the last of them default/{kubelets.full('other')}: UnexpectedAdmissionError: Allocate failed"
    )
    eventually(lambda: words in condition(kubelets, broken), "the Node has a condition")
    assert closed(kubelets, "all") == 1
    eventually(lambda: any(words in each for each in events_about(kubelets, broken)), "and an Event")
    reason = f"slurm-extender: condition {PODS_REJECTED}: the kubelet rejected 4 Pods"
    eventually(lambda: is_drained_for(kubelets, broken, reason), "drained, as the setting says")

    eventually(lambda: condition(kubelets, broken).startswith("False PodsAdmitted"), "open again")
    eventually(lambda: in_service(kubelets, broken), "resumed")
    kubelets.create("last", gpus=1, annotations=whole | {"required-nodes": broken})
    assert decide(kubelets, "last", broken="") == broken
    assert closed(kubelets, "all") == 0


def events_about(actors: Actors, name: str) -> list[str]:
    """The messages of Events on a Node about rejected Pods."""
    about = f"involvedObject.name={name},reason=KubeletRejectsPods"
    told = actors.kubectl("get", "events", "-n", "default", "--field-selector", about, "-o", "json")
    return [each["message"] for each in json.loads(told.stdout)["items"]]


def is_drained_for(actors: Actors, name: str, reason: str) -> bool:
    state, why = node(actors, name)
    return state in {"drained", "draining"} and why.startswith(reason)
