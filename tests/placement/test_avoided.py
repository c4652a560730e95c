"""If kube-scheduler rejects a Pod's Node, the Pod shows the reason, and gets a new job after a change of
the Node."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from extender.explain.cause import Due, Step
from extender.explain.message import next_steps, text
from extender.explain.sentences import sentence
from extender.node_view.view import ClusterView
from extender.placement.nodes.eligible_nodes import in_its_words
from extender.pod_request.constraints.node_constraints import Node, Taint, gains
from extender.pod_request.feasible_nodes import FeasibleNodes
from extender.record.events import ClusterObserved, Submit, WriteAttempt
from extender.record.states import State
from tests.builders import node_manifest
from tests.placement.ledger_world import VIEW, World
from wellknown.names import ELSEWHERE

LACKS = "0/2 nodes are available: 1 Insufficient rdma/ib, 1 " + ELSEWHERE + "."
OTHER = {"n1": "n2", "n2": "n1"}
NOW = datetime(2026, 11, 29, tzinfo=UTC)


class Cluster(World):
    """A world with two Nodes, where kube-scheduler rejects the Node of a Pod."""

    def placed(self) -> tuple[str, str]:
        """Creates a Pod with an allocation. Returns the uid and the allocated Node."""
        uid = self.settled_pod()
        allocation = self.pods[uid].scheduling.allocation
        assert allocation is not None
        return uid, allocation.node

    def refuses(self, uid: str, *, offers: bool, words: str = LACKS) -> None:
        """Lets kube-scheduler reject a Pod's Node with a message, and lets 0.3 s pass."""
        allocation = self.pods[uid].scheduling.allocation
        assert allocation is not None
        offered = FeasibleNodes(allocation.job_id, (OTHER[allocation.node],)) if offers else None
        self.say(uid, words, offered)
        self.live_on(0.3)

    def live_on(self, seconds: float) -> None:
        self.settle()
        self.wait(seconds)
        self.poll()


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def with_more(node: str, allocatable: Mapping[str, str]) -> ClusterView:
    return VIEW.with_node(node, replace(VIEW.nodes[node], allocatable=allocatable))


def test_message_omits_nodes_that_kube_scheduler_did_not_check() -> None:
    assert in_its_words(LACKS) == "0/2 nodes are available: 1 Insufficient rdma/ib"
    first = f"0/9 nodes are available: 7 {ELSEWHERE}, 2 node(s) were unschedulable. preemption: none"
    assert (
        in_its_words(first) == "0/9 nodes are available: 2 node(s) were unschedulable. preemption: none"
    )


def test_next_attempt_states_why_the_node_was_refused(cluster: Cluster) -> None:
    cluster.bound_pod()
    uid, node = cluster.placed()
    cluster.say(uid, LACKS, FeasibleNodes(cluster.pods[uid].scheduling.job_id or 0, (OTHER[node],)))
    (over,) = (each for each in cluster.settle() if isinstance(each, WriteAttempt))
    words = f"kube-scheduler refused {node}, which Slurm chose: 0/2 nodes are available: 1 Insufficient"
    assert over.cause is not None
    assert (over.cause.reason, sentence(over.cause)) == ("NodeRejected", f"{words} rdma/ib")
    assert over.cause.dues == (Due(Step.NODE_ALLOWED, cluster.now + cluster.rules.node_exclusion, node),)
    assert cluster.shown(uid) == over.cause


def test_pod_shows_a_message_that_follows_the_refusal(cluster: Cluster) -> None:
    cluster.bound_pod()
    uid, node = cluster.placed()
    cluster.change_and_settle(
        uid, feasible_nodes=FeasibleNodes(cluster.pods[uid].scheduling.job_id or 0, (OTHER[node],))
    )
    assert sentence(cluster.shown(uid)) == f"kube-scheduler refused {node}, which Slurm chose"
    cluster.say(uid, LACKS)
    cluster.live_on(0)
    assert "1 Insufficient rdma/ib" in sentence(cluster.shown(uid))


def test_queued_pod_shows_the_pending_reason_and_the_refused_node(cluster: Cluster) -> None:
    blocking = cluster.bound_pod()
    uid, node = cluster.placed()
    assert node != cluster.pods[blocking].life.node
    refused_at = cluster.now
    cluster.refuses(uid, offers=True)
    cluster.schedule()
    cluster.live_on(2)
    shown = cluster.shown(uid)
    assert shown.reason == "Resources"
    assert "all fitting nodes are in use (Resources)" in sentence(shown)
    words = f". kube-scheduler refused {node}: 0/2 nodes are available: 1 Insufficient rdma/ib."
    assert text(replace(shown, outlook=None)).endswith(words)
    (due,) = shown.dues
    assert f"; {node} is excluded until" in next_steps(shown, NOW, 0.0)
    assert due.at == pytest.approx(refused_at + cluster.rules.node_exclusion, abs=1)


def test_pod_refused_on_every_node_shows_the_pause(cluster: Cluster) -> None:
    uid, node = cluster.placed()
    cluster.refuses(uid, offers=False)
    cluster.live_on(1)
    shown = cluster.shown(uid)
    assert shown.reason == "NotBindable"
    words = "1 Insufficient rdma/ib; the extender requests no job until kube-scheduler finds a Node"
    assert words in sentence(shown)
    steps = next_steps(shown, NOW, 0.0)
    assert re.fullmatch(rf"; not before \S+ UTC; {node} is excluded until \S+ UTC", steps)
    cluster.live_on(cluster.rules.node_exclusion + 1)
    assert cluster.shown(uid).dues == ()


def test_allocation_clears_the_shown_cause() -> None:
    """At first, all Nodes are closed to the Pod. Then the Nodes open."""
    closed = VIEW
    for name in VIEW.nodes:
        closed = closed.with_node(name, replace(VIEW.nodes[name], unschedulable=True))
    cluster = Cluster()
    cluster.tell(ClusterObserved(closed))
    uid = cluster.create_pod()
    cluster.live_on(2)
    assert cluster.shown(uid).reason == "NoEligibleNode"
    cluster.tell_and_settle(ClusterObserved(VIEW))
    assert cluster.state_of(uid) is State.ALLOCATED
    assert [each.members[0].shown for each in cluster.ledger.placeholders] == [None]


BEFORE = Node("n1", "n1", {}, (Taint("a", "", "NoSchedule"),), allocatable={"rdma/ib": "0", "cpu": "8"})


@pytest.mark.parametrize(
    ("change", "gained"),
    [
        ({"allocatable": {"rdma/ib": "1"}}, True),
        ({"labels": {"rack": "a"}}, True),
        ({"taints": ()}, True),
        ({"has_agent": True}, True),
        ({}, False),
        ({"allocatable": {"cpu": "8000m"}}, False),
        ({"allocatable": {"rdma/ib": "0", "cpu": "7"}}, False),
        ({"taints": (*BEFORE.taints, Taint("b", "", "NoSchedule"))}, False),
        ({"unschedulable": True}, False),
    ],
    ids=str,
)
def test_node_gains_if_a_change_opens_it_to_more_pods(change: dict[str, Any], gained: bool) -> None:
    assert gains(BEFORE, replace(BEFORE, **change)) is gained


def test_node_is_parsed_with_its_allocatable_resources() -> None:
    manifest = node_manifest("n1")
    manifest["status"] = {"allocatable": {"rdma/ib": "1"}, "capacity": {"rdma/ib": "2"}}
    assert Node.parse(manifest, "slurm").allocatable == {"rdma/ib": "1"}


def test_pod_gets_a_new_job_after_its_node_has_the_missing_resource(cluster: Cluster) -> None:
    uid, node = cluster.placed()
    cluster.refuses(uid, offers=False)
    cluster.change_pod(uid, feasible_nodes=FeasibleNodes(0, (node,)))  # kube-scheduler finds the Node
    cluster.live_on(1)
    assert cluster.state_of(uid) is State.SEEN
    cluster.tell(ClusterObserved(with_more(node, {"rdma/ib": "1"})))
    (asked,) = (each for each in cluster.settle() if isinstance(each, Submit))
    assert asked.uid == uid
    assert node not in asked.job.excluded_nodes


def test_queued_job_may_use_a_node_that_now_has_the_missing_resource(cluster: Cluster) -> None:
    cluster.bound_pod()
    uid, node = cluster.placed()
    cluster.refuses(uid, offers=True)
    (job,) = cluster.live_jobs(uid)
    assert job.excluded_nodes == (node,)
    cluster.tell_and_settle(ClusterObserved(with_more(OTHER[node], {"rdma/ib": "1"})))
    (job,) = cluster.live_jobs(uid)
    assert job.excluded_nodes == (node,), "another Node has gained"
    cluster.tell_and_settle(ClusterObserved(with_more(node, {"rdma/ib": "1"})))
    (job,) = cluster.live_jobs(uid)
    assert job.excluded_nodes == ()
