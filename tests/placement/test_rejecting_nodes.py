"""A Node whose kubelet rejects Pods is closed for a while, to Pods with the same requests or to all
Pods."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import inf

import pytest

from extender.explain.sentences import sentence
from extender.node_view.view import ClusterView
from extender.placement.nodes.rejecting_nodes import RejectingNodes
from extender.pod_request.job_request import Request
from extender.pod_request.pod import Life, Pod
from slurm_client.model import Partition
from tests.placement.ledger_world import NO_DEVICE, REQUEST, World, of_user, view_of

NUMA = "TopologyAffinityError: Resources cannot be allocated with Topology locality"
SYSCTL = 'SysctlForbidden: forbidden sysctl: "net.core.somaxconn" not allowlisted'
NAMES = tuple(f"n{number}" for number in range(12))
VIEW = view_of(NAMES)


def rejected(
    request: Request = REQUEST, why: str = NO_DEVICE, name: str = "p", namespace: str = "default"
) -> Pod:
    life = Life(finished=True, kubelet_rejection=why)
    return Pod(f"uid-{name}", namespace, name, "1", request, life)


BY_TWO = (rejected(), rejected(namespace="elsewhere"))
"""Rejected Pods of two owners."""


@pytest.fixture
def known() -> RejectingNodes:
    return RejectingNodes((3, 60.0), (60.0, 240.0))


def reject(
    known: RejectingNodes,
    times: int,
    at: float = 0.0,
    *,
    node: str = "n1",
    pod: Pod | None = None,
    view: ClusterView = VIEW,
) -> bool:
    closes = [known.rejected(pod or rejected(), node, view, at + number) for number in range(times)]
    return any(closes)


def cpus(number: int) -> Request:
    return replace(REQUEST, job=replace(REQUEST.job, cpus=number))


def closed_to_all(known: RejectingNodes) -> set[str]:
    return {each.node for each in known.closures if each.to_all}


def test_a_node_is_closed_to_similar_pods_after_three_rejections(known: RejectingNodes) -> None:
    assert not reject(known, 2)
    assert reject(known, 1, at=2.0)
    assert known.closed_to("default", REQUEST) == {"n1"}
    named = replace(REQUEST, job=replace(REQUEST.job, name="another Pod of the Deployment"))
    assert known.closed_to("default", named) == {"n1"}
    with_volume = replace(REQUEST, constraints=REQUEST.constraints.with_claimed([]))
    assert known.closed_to("default", with_volume) == {"n1"}
    assert known.closed_to("default", cpus(2)) == frozenset()
    assert known.closed_to("elsewhere", REQUEST) == frozenset()


def test_a_closure_names_the_last_pod_its_rejection_and_the_pause(known: RejectingNodes) -> None:
    reject(known, 3, pod=rejected(name="serve-1"))
    words = (
        f"the kubelet rejected 3 Pods, the last of them default/serve-1: {NO_DEVICE}."
        " The extender places no Pods like default/serve-1 here for 60 s, or until such a Pod starts"
    )
    (closure,) = known.closures
    assert (closure.node, closure.to_all, closure.until) == ("n1", False, 62.0)
    assert sentence(closure.cause) == words


def test_a_node_is_closed_to_an_owner_whose_different_pods_are_rejected(known: RejectingNodes) -> None:
    reject(known, 2)
    reject(known, 1, at=2.0, pod=rejected(cpus(2)))
    assert closed_to_all(known) == set()
    assert known.closed_to("default", cpus(3)) == {"n1"}
    assert known.closed_to("elsewhere", cpus(3)) == frozenset()
    assert known.closed_to("default", of_user(7)) == frozenset()
    (closure,) = known.closures
    assert "The extender places no Pods of namespace default here for 60 s" in sentence(closure.cause)


@pytest.mark.parametrize("pod", [rejected(namespace="elsewhere"), rejected(of_user(7))])
def test_a_node_is_closed_to_all_if_pods_of_two_owners_fail(known: RejectingNodes, pod: Pod) -> None:
    reject(known, 2)
    reject(known, 1, at=2.0, pod=pod)
    assert closed_to_all(known) == {"n1"}
    assert known.closed_to("a third", of_user(8)) == {"n1"}


def test_rejections_do_not_count_after_a_minute(known: RejectingNodes) -> None:
    assert not any(reject(known, 1, at=at) for at in (0.0, 40.0, 70.0, 110.0, 140.0))
    assert reject(known, 1, at=150.0)


def test_rejections_of_two_nodes_do_not_add_up(known: RejectingNodes) -> None:
    reject(known, 2)
    assert not reject(known, 2, node="n2")


@pytest.mark.parametrize(("why", "closes"), [(SYSCTL, set()), (NUMA, {"n1"}), ("OutOfcpu: x", {"n1"})])
def test_rejection_for_the_pods_own_settings_closes_no_node_to_all(
    known: RejectingNodes, why: str, closes: set[str]
) -> None:
    for namespace in ("default", "elsewhere"):
        reject(known, 3, pod=rejected(REQUEST, why, namespace=namespace))
    assert closed_to_all(known) == closes
    assert known.closed_to("elsewhere", REQUEST) == {"n1"}


def test_an_owner_closes_no_node_to_other_owners(known: RejectingNodes) -> None:
    """An owner whose Deployments are wrong closes a third of the Nodes to the owner's other Pods."""
    for number, node in enumerate(NAMES):
        for request in (REQUEST, cpus(2)):
            reject(known, 3, at=10.0 + number, node=node, pod=rejected(request))
    assert closed_to_all(known) == set()
    assert known.closed_to("elsewhere", REQUEST) == frozenset()
    assert known.closed_to("default", cpus(3)) == set(NAMES[:4])
    assert known.closed_to("default", REQUEST) == set(NAMES)


@pytest.mark.parametrize(
    ("partitions", "closed"),
    [
        ({"main": NAMES, "gpu": NAMES[:3]}, {"n0", "n3", "n4", "n5"}),
        ({}, set(NAMES[:4])),
    ],
    ids=["of each partition", "without partitions"],
)
def test_a_third_of_the_nodes_at_most_is_closed_to_all_pods(
    known: RejectingNodes, partitions: dict[str, tuple[str, ...]], closed: set[str]
) -> None:
    view = replace(VIEW, partitions={name: Partition(name, nodes) for name, nodes in partitions.items()})
    for number, node in enumerate(NAMES):
        for pod in BY_TWO:
            reject(known, 3, 10.0 + number, node=node, pod=pod, view=view)
    assert closed_to_all(known) == closed


def test_pauses_grow_while_a_node_rejects_and_one_rejection_is_enough(known: RejectingNodes) -> None:
    at, pauses = 0.0, []
    reject(known, 2)
    for _ in range(4):
        at += 2.0
        reject(known, 1, at=at)
        pauses.append(known.opens - at)
        at = known.opens
        assert known.reopen(at)
        assert known.closures == ()
    assert pauses == [60.0, 120.0, 240.0, 240.0]


def test_a_node_without_rejections_for_a_pause_needs_three_again(known: RejectingNodes) -> None:
    reject(known, 3)
    assert not reject(known, 1, at=62.0 + 61.0)


def test_a_pod_on_its_way_to_a_closed_node_does_not_prolong_the_pause(known: RejectingNodes) -> None:
    reject(known, 6)
    assert known.opens == 62.0


def test_a_pod_that_starts_opens_the_node_at_once_and_resets_the_pause(known: RejectingNodes) -> None:
    for pod in BY_TWO:
        reject(known, 3, pod=pod)
    assert known.started(rejected(), "n1", 7.0)
    assert closed_to_all(known) == set()
    assert known.closed_to("default", REQUEST) == frozenset()
    assert known.closed_to("elsewhere", REQUEST) == {"n1"}
    assert not reject(known, 2, at=8.0)


def with_gpus(count: int) -> Request:
    gres = (("gpu", count),) if count else ()
    return replace(REQUEST, job=replace(REQUEST.job, gres=gres))


@pytest.mark.parametrize(("count", "opens"), [(0, False), (1, False), (2, True), (3, True)])
def test_a_pod_opens_a_node_only_with_devices_of_rejected_pods(
    known: RejectingNodes, count: int, opens: bool
) -> None:
    """A Pod without GPUs starts even if the device plugin has failed, so the start proves nothing about
    GPUs."""
    for namespace in ("a", "b", "c"):
        reject(known, 1, pod=rejected(with_gpus(2), namespace=namespace))
    started = rejected(with_gpus(count))
    assert known.started(started, "n1", 3.0) is opens
    assert closed_to_all(known) == (set() if opens else {"n1"})


def test_a_pod_without_gpus_resets_no_count_of_rejected_pods_with_gpus(known: RejectingNodes) -> None:
    for at, namespace in enumerate(("a", "b", "c")):
        reject(known, 1, at=float(at), pod=rejected(with_gpus(1), namespace=namespace))
        known.started(rejected(with_gpus(0)), "n1", at + 0.5)
    assert closed_to_all(known) == {"n1"}


def test_gpus_that_slurm_does_not_count_are_devices_too(known: RejectingNodes) -> None:
    gpus = replace(REQUEST, uncounted_gpus=("amd.com/gpu",))
    reject(known, 3, pod=rejected(gpus))
    assert not known.started(rejected(), "n1", 3.0)
    assert known.started(rejected(gpus), "n1", 4.0)


def test_pods_that_differ_only_in_their_comments_are_similar(known: RejectingNodes) -> None:
    for number in range(3):
        job = replace(REQUEST.job, comment=f"run {number}")
        reject(known, 1, pod=rejected(replace(REQUEST, job=job)))
    assert known.closed_to("default", REQUEST) == {"n1"}
    assert closed_to_all(known) == set()


def test_nodes_that_no_longer_reject_pods_are_forgotten(known: RejectingNodes) -> None:
    for number in range(50):
        reject(known, 3, at=number * 1000.0, node=f"n{number}")
    assert len(known) <= 3
    known.reopen(1e9)
    assert known.opens == inf


# The ledger


class Site(World):
    """A world of three Nodes. The kubelets of the broken Nodes reject every Pod."""

    def __init__(self) -> None:
        super().__init__(nodes=("n1", "n2", "n3"))
        self.broken = {"n1"}

    def pod_of_deployment(self, request: Request = REQUEST) -> Pod:
        """Creates and binds a Pod; then the kubelet starts or rejects the Pod."""
        uid = self.settled_pod(request=request)
        self.schedule()  # the job of another user waits until here
        self.live_on(0.1)
        self.bind_and_settle(uid)
        broken = self.pods[uid].life.node in self.broken
        (self.kubelet_rejects if broken else self.kubelet_starts)(uid)
        self.live_on(0.1)
        return self.pods[uid]

    def pods_until_one_starts(self, request: Request = REQUEST) -> Iterator[Pod]:
        for _ in range(10):
            pod = self.pod_of_deployment(request)
            yield pod
            if pod.life.started:
                return

    def live_on(self, seconds: float) -> None:
        self.settle()
        self.wait_and_poll(seconds)


@pytest.fixture
def site() -> Site:
    return Site()


def test_a_deployment_leaves_a_node_that_rejects_its_pods_after_three(site: Site) -> None:
    pods = list(site.pods_until_one_starts())
    assert [pod.life.node for pod in pods] == ["n1", "n1", "n1", "n2"]


def test_another_users_deployment_has_the_node_closed_to_all(site: Site) -> None:
    first, second = list(site.pods_until_one_starts()), list(site.pods_until_one_starts(of_user(7)))
    assert (len(first), len(second)) == (4, 2)
    (closed,) = {each.node for each in site.ledger.rejecting_nodes.closures if each.to_all}
    assert closed == "n1"


def pod_that_no_kubelet_admits(site: Site) -> str:
    site.broken = {"n1", "n2", "n3"}
    for _ in range(9):
        assert site.pod_of_deployment().life.kubelet_rejection
    uid = site.create_pod()
    site.live_on(2.0)
    return uid


def test_pod_that_no_kubelet_admits_waits_and_shows_the_cause(site: Site) -> None:
    uid = pod_that_no_kubelet_admits(site)
    shown = site.shown(uid)
    assert shown.reason == "NoEligibleNode"
    assert "0/3 Nodes: 3 have a kubelet that rejects Pods" in sentence(shown)
    assert site.live_jobs(uid) == []
    others = site.bound_pod(request=cpus(2))  # the rejected Pod may be wrong, so the Nodes stay open
    assert site.pods[others].life.node


def test_a_waiting_pod_is_placed_when_the_pause_is_over(site: Site) -> None:
    uid = pod_that_no_kubelet_admits(site)
    assert site.live_jobs(uid) == []
    site.live_on(site.ledger.next_wake() - site.now)
    assert site.live_jobs(uid) == []
    site.live_on(site.rules.closed_by_kubelet[0])
    assert len(site.live_jobs(uid)) == 1


def test_queued_job_excludes_a_closed_node_until_it_opens(site: Site) -> None:
    for _ in site.nodes:
        site.start_native_job()
    site.end_job(min(site.jobs), "COMPLETED")
    for _ in range(3):
        assert site.pod_of_deployment().life.node == "n1"
    uid = site.create_pod()
    site.live_on(2.0)
    (job,) = site.live_jobs(uid)
    assert job.excluded_nodes == ("n1",)
    site.live_on(site.rules.closed_by_kubelet[0])
    (job,) = site.live_jobs(uid)
    assert job.excluded_nodes == ()


def test_a_new_leader_needs_three_rejections_again(site: Site) -> None:
    list(site.pods_until_one_starts())
    site.restart()
    assert site.ledger.rejecting_nodes.closures == ()
    assert len(list(site.pods_until_one_starts())) == 4
