"""Tests of a node agent's token: the agent may write conditions and an annotation of its own Node, and
nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from deploy.local.chart import AGENT_NAME, NAMESPACE
from deploy.local.cluster import Cluster
from node_agent.reporting import node_devices
from node_agent.reporting.node_condition import WITHDRAWN, Condition
from tests.end_to_end.agent_account import token_of_a_pod, unbound_token
from tests.end_to_end.caller import Caller
from tests.eventually import eventually
from wellknown.names import DEVICE_PROBLEM, DEVICES, SLURMD_PROBLEM

pytestmark = pytest.mark.real

OWN, OTHER = "node-1", "node-2"
OTHERS = "kwok.x-k8s.io/node"
"""Annotation of another program, which each Node already has."""
POLICY = "ValidatingAdmissionPolicy 'slurm-extender-node-agent'"
ONLY = (
    f"the node agent may write the conditions {DEVICE_PROBLEM} and {SLURMD_PROBLEM} and the annotation "
    f"{DEVICES} of its Node and nothing else"
)
NO_NODE = "this token of the node agent is bound to no Node"
WIDER = "tests-may-write-nodes"
"""Role with more rights to Nodes than an agent's role. The policy refuses even with this role."""
ROLES = "/apis/rbac.authorization.k8s.io/v1"
ACCOUNT = f"system:serviceaccount:{NAMESPACE}:{AGENT_NAME}"
KUBELET = f"system:node:{OWN}"
NEIGHBOUR = f"system:serviceaccount:{NAMESPACE}:slurm-extender"
"""Another account of the agents' namespace."""


def told(answer: httpx.Response) -> str:
    """Returns the policy's message about a refused write."""
    assert answer.status_code == 403, answer.text
    message = str(answer.json()["message"])
    assert POLICY in message
    return message.partition("denied request: ")[2]


def condition(reason: str = "DevicesUsable") -> dict[str, Any]:
    """Returns the patch that an agent writes."""
    return Condition(False, reason, "words").patch(None)


def with_condition(**status: Any) -> dict[str, Any]:
    """Returns a patch with the agent's condition and other changes."""
    conditions = condition()["status"]["conditions"] + status.pop("conditions", [])
    return {"status": {"conditions": conditions, **status}}


@pytest.fixture(scope="module")
def callers(cluster: Cluster) -> Iterator[dict[str, Caller]]:
    """Callers by name: the agent of `OWN`, two agents with tokens without a Node, the administrator, and
    users."""
    with ExitStack() as stack:
        tokens = {
            "agent": stack.enter_context(token_of_a_pod(cluster, OWN)),
            "waiting": stack.enter_context(token_of_a_pod(cluster, None)),
            "unbound": unbound_token(cluster),
        }
        users = (KUBELET, NEIGHBOUR, ACCOUNT)
        made = {name: Caller(cluster, token) for name, token in tokens.items()} | {
            user: Caller(cluster, user=user) for user in users
        }
        made["admin"] = Caller(cluster)
        for caller in made.values():
            stack.callback(caller.close)
        # kube-apiserver applies a new policy only after a moment.
        eventually(lambda: made["agent"].patch(OTHER, condition()).status_code == 403, "the policy")
        yield made
        made["admin"].patch(OWN, WITHDRAWN).raise_for_status()
        made["admin"].patch(OTHER, WITHDRAWN).raise_for_status()


@pytest.fixture
def wider(callers: dict[str, Caller]) -> Iterator[None]:
    """Lets the agent, the kubelet and another account patch Nodes during a test."""
    admin = callers["admin"]
    rule = {"apiGroups": [""], "resources": ["nodes", "nodes/status"], "verbs": ["patch"]}
    subjects = [{"kind": "User", "name": name} for name in (ACCOUNT, KUBELET, NEIGHBOUR)]
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": WIDER}
    named = {"metadata": {"name": WIDER}}
    admin.ask("POST", f"{ROLES}/clusterroles", named | {"rules": [rule]}).raise_for_status()
    bound = named | {"roleRef": reference, "subjects": subjects}
    admin.ask("POST", f"{ROLES}/clusterrolebindings", bound).raise_for_status()

    def who() -> list[bool]:
        """Returns, for each account, if kube-apiserver allows the patch."""
        return [callers[name].patch(OWN, {}, "").is_success for name in ("agent", KUBELET, NEIGHBOUR)]

    eventually(lambda: all(who()), "the wider role")
    yield
    admin.ask("DELETE", f"{ROLES}/clusterrolebindings/{WIDER}").raise_for_status()
    admin.ask("DELETE", f"{ROLES}/clusterroles/{WIDER}").raise_for_status()
    eventually(lambda: not any(who()), "the wider role gone")


def test_an_agent_writes_the_condition_of_its_own_node(callers: dict[str, Caller]) -> None:
    for reason in ("First", "Second"):  # adds, and then changes, the condition
        callers["agent"].patch(OWN, condition(reason)).raise_for_status()
        assert Condition.on(callers["admin"].read(OWN)) == Condition(False, reason, "words")
    callers["agent"].patch(OWN, WITHDRAWN).raise_for_status()
    assert Condition.on(callers["admin"].read(OWN)) is None


def test_an_agent_writes_its_annotation_of_its_own_node(callers: dict[str, Caller]) -> None:
    """The agent writes the annotation beside annotations of other programs, with or without the
    condition."""
    before = callers["admin"].read(OWN)
    for text, patch in (("one", condition("First")), ("other", {}), ("x" * 64 * 1024, {})):
        callers["agent"].patch(OWN, patch | node_devices.patch(text)).raise_for_status()
        now = callers["admin"].read(OWN)
        assert node_devices.text_on(now) == text
        assert Condition.on(now) == Condition(False, "First", "words")
    for _ in range(2):  # the removal of a missing field succeeds
        callers["agent"].patch(OWN, WITHDRAWN).raise_for_status()
        assert callers["admin"].read(OWN) == before


def test_agent_cannot_write_the_status_of_another_node(callers: dict[str, Caller]) -> None:
    before = callers["admin"].read(OTHER)
    refusal = told(callers["agent"].patch(OTHER, condition()))
    assert refusal == (
        f"this token is of the node agent on Node {OWN}, which may write the status of that Node only, "
        f"and not of Node {OTHER}"
    )
    told(callers["agent"].patch(OTHER, node_devices.patch("theirs")))
    assert callers["admin"].read(OTHER) == before


@pytest.mark.parametrize("who", ["unbound", "waiting", ACCOUNT])
def test_token_without_a_node_cannot_write_any_node(callers: dict[str, Caller], who: str) -> None:
    for node in (OWN, OTHER):
        assert told(callers[who].patch(node, condition())).startswith(NO_NODE)


@pytest.mark.parametrize(
    ("patch", "named"),
    [
        (with_condition(capacity={"nvidia.com/gpu": "8"}), "capacity"),
        (with_condition(allocatable={"cpu": None}), "allocatable"),
        (with_condition(addresses=[{"type": "Hostname", "address": "elsewhere"}]), "addresses"),
        (with_condition(addresses=None), "addresses"),
        (with_condition(nodeInfo={"kernelVersion": "7"}), "nodeInfo"),
        (with_condition(daemonEndpoints={"kubeletEndpoint": {"Port": 1}}), "daemonEndpoints"),
        (with_condition(images=[{"names": ["busybox"]}]), "images"),
        (with_condition(phase="Running"), "phase"),
        (with_condition(conditions=[{"type": "Ready", "status": "False"}]), "other conditions"),
        (with_condition(conditions=[{"type": "Ready", "$patch": "delete"}]), "other conditions"),
        (with_condition(conditions=[{"type": "New", "status": "True"}]), "other conditions"),
        (condition() | {"metadata": {"labels": {"added": "yes"}}}, "labels"),
        (condition() | {"metadata": {"labels": {"kubernetes.io/hostname": None}}}, "labels"),
        (condition() | {"metadata": {"annotations": {"added": "yes"}}}, "annotations"),
        (condition() | {"metadata": {"annotations": None}}, "annotations"),
        (condition() | {"metadata": {"annotations": {DEVICES: "mine", "added": "yes"}}}, "annotations"),
        (condition() | {"metadata": {"annotations": {OTHERS: None}}}, "annotations"),
        (condition() | {"metadata": {"annotations": {OTHERS: "mine"}}}, "annotations"),
        (condition() | {"metadata": {"annotations": {f"{DEVICES}-too": "yes"}}}, "annotations"),
        (condition() | {"metadata": {"finalizers": ["example.com/stays"]}}, "finalizers"),
    ],
)
def test_agent_cannot_write_other_fields_of_its_node(
    callers: dict[str, Caller], patch: dict[str, Any], named: str
) -> None:
    before = callers["admin"].read(OWN)
    assert told(callers["agent"].patch(OWN, patch)) == f"{ONLY}, and this changes: {named}"
    assert callers["admin"].read(OWN) == before


def test_refusal_names_all_changed_fields(callers: dict[str, Caller]) -> None:
    patch = with_condition(phase="Running", addresses=None) | {"metadata": {"labels": {"a": "b"}}}
    _, _, named = told(callers["agent"].patch(OWN, patch)).partition("this changes: ")
    assert sorted(named.split(", ")) == ["addresses", "labels", "phase"]


def test_status_write_does_not_change_taints(callers: dict[str, Caller]) -> None:
    """In a write of the status, kube-apiserver restores the old spec before kube-apiserver evaluates the
    policies."""
    taint = {"spec": {"taints": [{"key": "mine", "effect": "NoExecute"}]}}
    callers["agent"].patch(OWN, condition() | taint).raise_for_status()
    assert callers["admin"].read(OWN)["spec"] == {}


@pytest.mark.parametrize(
    ("patch", "named"),
    [
        ({"spec": {"taints": [{"key": "mine", "effect": "NoSchedule"}]}}, "other taints"),
        ({"spec": {"unschedulable": True}}, "unschedulable"),
        ({"metadata": {"labels": {"added": "yes"}}}, "labels"),
        ({"metadata": {"annotations": {"added": "yes"}}}, "annotations"),
    ],
)
@pytest.mark.usefixtures("wider")
def test_agent_with_a_wider_role_cannot_write_more(
    callers: dict[str, Caller], patch: dict[str, Any], named: str
) -> None:
    assert told(callers["agent"].patch(OWN, patch, "")) == f"{ONLY}, and this changes: {named}"
    assert OTHER in told(callers["agent"].patch(OTHER, patch, ""))


@pytest.mark.parametrize("user", [KUBELET, NEIGHBOUR])
@pytest.mark.usefixtures("wider")
def test_policy_applies_only_to_agents(callers: dict[str, Caller], user: str) -> None:
    for node in (OWN, OTHER):
        for value in ("written", None):
            patch = with_condition(phase=value and "Running")
            patch["metadata"] = {"labels": {"written": value}}
            callers[user].patch(node, patch).raise_for_status()


def test_role_of_an_agent_has_only_the_needed_rights(callers: dict[str, Caller]) -> None:
    """The test leaves out the rights that every account has."""
    for namespace in ("default", NAMESPACE):
        assert callers["agent"].may(namespace) - callers[NEIGHBOUR].may(namespace) == {
            ("pods", "list"),
            ("pods", "watch"),
            ("nodes", "get"),
            ("nodes/status", "patch"),
        }
