"""Pods that may not share a Node or a topology domain are placed at once, although Slurm fills node
after node."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.execution.pod_patches import nomination
from extender.explain.sentences import sentence
from extender.node_view.view import ClusterView
from extender.placement.nodes.placed_pods import PlacedPods
from extender.pod_request.constraints.node_constraints import ANYWHERE
from extender.pod_request.constraints.pod_constraints import (
    AntiAffinity,
    HostPort,
    PodConstraints,
    Requirement,
    Spread,
)
from extender.record.config import PlacementConfig
from extender.record.events import Effect, ReportWaiting, WriteAttempt
from extender.record.placeholder import Placeholder
from extender.record.states import State
from tests.builders import changed, pod
from tests.clock import CpuClock
from tests.placement.ledger_world import HOSTNAME, REFUSAL, REQUEST, ZONE, World, calm_down, view_of
from wellknown.allocation import Allocation
from wellknown.names import Reason
from wellknown.pauses import Pauses


def app(name: str) -> tuple[Requirement, ...]:
    return (Requirement("app", "In", frozenset((name,))),)


def labels(name: str) -> frozenset[tuple[str, str]]:
    return frozenset({("app", name)})


def alone(name: str = "a", key: str = HOSTNAME) -> PodConstraints:
    """Returns anti-affinity to Pods with the same name in a topology domain."""
    term = AntiAffinity(key, app(name), frozenset(("default",)))
    return PodConstraints("default", labels(name), anti_affinity=(term,))


def spread(name: str = "a", skew: int = 1, minimum: int = 1) -> PodConstraints:
    constraint = Spread(ZONE, skew, app(name), minimum)
    return PodConstraints("default", labels(name), spread=(constraint,))


def with_port(port: int = 80) -> PodConstraints:
    return PodConstraints("default", ports=(HostPort("TCP", port),))


def plain(name: str = "a") -> PodConstraints:
    return PodConstraints("default", labels(name))


def world_of(nodes: int, *, fast: bool = True) -> World:
    """Returns a world whose Slurm fills each Node before the next. Each Node has room for all Pods."""
    names = tuple(f"n{number}" for number in range(1, nodes + 1))
    rules = PlacementConfig(
        fast_path=fast, node_exclusion=20.0, offer_validity=10.0, unbindable=Pauses(5.0, 20.0)
    )
    return World(rules, names, jobs_per_node=100)


class QuickWorld(World):
    """A world for many Pods, without a check whose cost grows with the square of the number of Pods."""

    def no_two_live_jobs(self) -> None:
        pass


def nodes_of(world: World) -> list[str]:
    return [pod.life.node for pod in world.pods.values() if pod.life.node]


def place(world: World, constraints: PodConstraints) -> str | None:
    """Creates a Pod, and returns its Node after ten rounds."""
    uid = world.create_pod(constraints=constraints)
    calm_down(world, rounds=10)
    return world.pods[uid].life.node


def live(world: World, rounds: int) -> list[Effect]:
    """Runs Slurm's scheduler and kube-scheduler `rounds` times; no time passes. Returns the effects."""
    done: list[Effect] = []
    for _ in range(rounds):
        done += world.settle()
        done += world.start_and_poll()
        for uid in sorted(world.pods):
            world.bind(uid)
        done += world.settle()
        world.pass_time(0.0)
    return done


@pytest.mark.parametrize("constraints", [alone(), with_port()], ids=["anti-affinity", "host port"])
def test_sixteen_pods_get_sixteen_nodes_without_a_second_attempt(constraints: PodConstraints) -> None:
    world = world_of(16)
    world.create_pods(16, constraints=constraints)
    done = live(world, 2)
    assert sorted(nodes_of(world)) == sorted(world.nodes)
    assert not world.rejected_for_pods.total()
    assert not [each for each in done if isinstance(each, WriteAttempt)]


def test_queued_jobs_get_different_nodes_without_a_second_attempt() -> None:
    world = world_of(4, fast=False)
    world.create_pods(4, constraints=alone())
    done = live(world, 6)
    assert sorted(nodes_of(world)) == sorted(world.nodes)
    assert not [each for each in done if isinstance(each, WriteAttempt)]


def test_pods_are_spread_over_zones_and_never_rejected() -> None:
    world = world_of(6)
    world.create_pods(12, constraints=spread())
    live(world, 6)
    zones = [world.view.nodes[node].labels[ZONE] for node in nodes_of(world)]
    assert sorted(zones) == sorted(["z0", "z1", "z2"] * 4)
    assert not world.rejected_for_pods.total()


def test_one_of_two_conflicting_templates_gives_its_grant_back_at_once() -> None:
    """Slurm grants the same Node to a Pod of each template at once. The ledger gives one of the two
    grants back, and requests the next job without a pause."""
    world = world_of(4)
    others = PodConstraints("default", labels("b"), anti_affinity=alone("a").anti_affinity)
    for constraints in (plain("a"), others) * 2:
        world.create_pod(constraints=constraints)
    done = live(world, 3)
    on: dict[str, set[str]] = {}
    for each in world.pods.values():
        assert each.life.node is not None
        on.setdefault(each.life.node, set()).add(dict(each.scheduling.constraints.labels)["app"])
    assert all(len(apps) == 1 for apps in on.values())
    assert not world.rejected_for_pods.total()
    assert [each for each in done if isinstance(each, WriteAttempt)], "nothing conflicted"


def remove_a_bound_pod(world: World) -> None:
    world.remove_pod(next(uid for uid, each in world.pods.items() if each.life.node))


def test_pods_without_a_free_node_wait_and_follow_a_pod_that_leaves() -> None:
    world = world_of(2)
    world.create_pods(4, constraints=alone())
    live(world, 2)
    assert len(nodes_of(world)) == 2
    world.pass_time(2.0)
    told = [each.cause for each in live(world, 1) if isinstance(each, ReportWaiting)]
    assert {each.reason for each in told} == {Reason.NO_ELIGIBLE_NODE}
    assert "2 have Pods that the Pod must be apart from" in sentence(told[0])
    assert len(world.running()) == 2, "a job holds a Node that its Pod cannot use"
    remove_a_bound_pod(world)
    live(world, 3)
    assert len(nodes_of(world)) == 2


@pytest.mark.parametrize("fast", [True, False])
def test_a_pod_without_a_free_node_does_not_hold_up_other_pods(*, fast: bool) -> None:
    """The first Pod has no constraints of its own. The constraints of other Pods exclude the first Pod
    from all Nodes."""
    world = world_of(2, fast=fast)
    world.create_pods(2, constraints=alone())
    live(world, 4)
    first = world.create_pod(constraints=plain("a"))
    second = world.create_pod(constraints=plain("b"))
    live(world, 2)
    assert world.pods[first].life.node is None
    assert world.pods[second].life.node
    remove_a_bound_pod(world)
    live(world, 2)
    assert world.pods[first].life.node


def test_a_waiting_pod_does_not_hold_up_another_template() -> None:
    """Slurm has no room for the Pods of the first template. The other template requests less."""
    world = World(replace(PlacementConfig(), fast_path=False), ("n1", "n2"), jobs_per_node=1)
    large = replace(REQUEST, job=replace(REQUEST.job, nodes=3))
    first = world.create_pod(request=large, constraints=alone())
    second = world.create_pod(constraints=alone())
    live(world, 3)
    assert world.pods[first].life.node is None
    assert world.pods[second].life.node


def test_a_held_job_does_not_hold_up_its_template() -> None:
    world = world_of(4, fast=False)
    first = world.settled_pod(constraints=alone())
    (held,) = world.jobs
    world.change_job(held, held=True, reason="JobHeldAdmin", priority=0)
    world.create_pods(3, constraints=alone())
    world.settle()
    world.pass_time(2.0)
    told = [each.cause for each in world.settle() if isinstance(each, ReportWaiting)]
    assert [each for each in told if f"Pod default/p1 (Slurm job {held})" in sentence(each)]
    for _ in range(6):
        world.pass_time(1.0)
        live(world, 1)
    assert world.pods[first].life.node is None
    assert len(set(nodes_of(world))) == 3


def test_all_jobs_of_a_template_are_queued_at_once_if_slurm_has_no_room() -> None:
    """When nodes become free, Slurm starts several jobs on one node, and the ledger gives the surplus
    grants back."""
    world = World(PlacementConfig(), tuple(f"n{number}" for number in range(16)), jobs_per_node=16)
    for _ in range(16 * 16):
        world.start_native_job()
    world.create_pods(16, constraints=alone())
    for _ in range(7):
        live(world, 2)
        world.pass_time(1.0)
    assert sum(job.state.pending for job in world.jobs.values()) == 16
    for job in tuple(world.jobs):
        if world.jobs[job].state.running:
            world.end_job(job, "COMPLETED")
    live(world, 3)
    assert sorted(nodes_of(world)) == sorted(world.nodes)


def test_rejections_for_other_pods_do_not_lengthen_the_backoff() -> None:
    """Each time, kube-scheduler rejects the granted Node because of an unmanaged Pod, which the ledger
    does not know."""
    world = World(PlacementConfig(node_exclusion=1.0, unbindable=Pauses(5.0, 20.0)), ("n1", "n2"))
    uid = world.create_pod(constraints=alone())
    words = "0/2 nodes are available: 1 node(s) didn't satisfy existing pods anti-affinity rules"
    for _ in range(6):
        world.catch_up_with_slurm()
        assert world.pods[uid].scheduling.allocation, "a job is asked for at once"
        world.say(uid, words)
        world.settle()
        world.wait(1.1)
        world.look(uid)
    record = world.record(uid)
    assert record.rejections.in_a_row == 0
    assert record.rejections.rests_until <= world.now


def test_other_rejections_lengthen_the_backoff() -> None:
    world = World(PlacementConfig(node_exclusion=1.0, unbindable=Pauses(5.0, 20.0)), ("n1", "n2"))
    uid = world.create_pod()
    world.catch_up_with_slurm()
    world.say(uid, REFUSAL)
    world.settle()
    world.wait(0.3)
    record = world.record(uid)
    assert record.rejections.in_a_row == 1
    assert record.rejections.rests_until > world.now


# Pods unknown to the ledger


@pytest.mark.parametrize("others", [("n1", "n1"), ("n1", "n1", "n2")])
def test_spread_follows_kube_scheduler_beside_unmanaged_pods(others: tuple[str, ...]) -> None:
    """Because of the unmanaged Pods, kube-scheduler allows only the second zone. The ledger alone would
    close the second zone after the first Pod."""
    world = world_of(2)
    world.unmanaged = [(spread(), node) for node in others]
    assert place(world, spread()) == "n2"
    world.unmanaged = [(spread(), "n1"), (spread(), "n1")]
    assert place(world, spread()) == "n2"


def test_spread_follows_kube_scheduler_if_the_ledger_closes_all_nodes() -> None:
    """The third zone has an unmanaged Pod, and the Pods exclude this zone. kube-scheduler counts the
    unmanaged Pod, and the ledger does not."""
    world = world_of(3)
    world.unmanaged = [(spread(), "n3")]
    small = replace(REQUEST, job=replace(REQUEST.job, excluded_nodes=("n3",)))
    world.create_pods(4, request=small, constraints=spread())
    calm_down(world, rounds=10)
    assert sorted(nodes_of(world)) == ["n1", "n1", "n2", "n2"]


def test_spread_follows_kube_scheduler_if_the_open_zone_is_busy() -> None:
    """The ledger does not know the unmanaged Pods. So the ledger opens only the first zone, where Slurm
    has no room."""
    world = World(PlacementConfig(unbindable=Pauses(5.0, 20.0)), ("n1", "n2"), jobs_per_node=3)
    world.unmanaged = [(spread(), "n1"), (spread(), "n1")]
    assert place(world, spread()) == "n2"
    for _ in range(3):
        world.start_native_job()
    second = world.create_pod(constraints=spread())
    for _ in range(20):
        live(world, 1)
        world.pass_time(1.0)
    assert world.pods[second].life.node == "n2"


# Nodes closed by placed Pods


def placed(view_nodes: int, *pods: tuple[PodConstraints, str, bool]) -> tuple[PlacedPods, ClusterView]:
    """Returns placed Pods (bound, or only granted a Node), and a view of the Nodes."""
    book, view = PlacedPods(), view_of(tuple(f"n{number}" for number in range(view_nodes)))
    for number, (constraints, node, bound) in enumerate(pods):
        book.follow(f"u{number}", record_on(f"u{number}", constraints, node, bound=bound))
    return book, view


def record_on(uid: str, constraints: PodConstraints, node: str, *, bound: bool) -> Placeholder:
    seen = changed(pod(name=uid), uid=uid, constraints=constraints, node=node if bound else None)
    record = Placeholder.of(seen)._replace(state=State.BOUND if bound else State.ALLOCATED)
    return record.with_members(slot=Allocation(1, node))


def closed(book: PlacedPods, view: ClusterView, constraints: PodConstraints) -> set[str]:
    nodes = book.closed_to(constraints, ANYWHERE, view).all
    return {name for name in view.nodes if nodes & view.named((name,))}


def test_granted_and_bound_pods_close_their_nodes_to_both_sides() -> None:
    book, view = placed(4, (alone(), "n0", False), (alone(), "n1", True), (alone("b"), "n2", True))
    assert closed(book, view, alone()) == {"n0", "n1"}
    assert closed(book, view, plain("a")) == {"n0", "n1"}
    assert closed(book, view, plain("c")) == set()


def test_anti_affinity_closes_whole_topology_domains() -> None:
    book, view = placed(6, (plain(), "n0", True))
    assert closed(book, view, alone(key=ZONE)) == {"n0", "n3"}


def test_pods_that_leave_open_their_nodes() -> None:
    book, view = placed(2, (alone(), "n0", True))
    assert book.follow("u0", None) == (alone(),)
    assert closed(book, view, alone()) == set()


def test_spread_closes_domains_above_the_skew() -> None:
    book, view = placed(6, (spread(), "n0", True))
    assert closed(book, view, spread()) == {"n0", "n3"}
    assert closed(book, view, spread(skew=2)) == set()


def test_spread_takes_the_smallest_domain_from_bound_pods() -> None:
    """kube-scheduler may check the second Pod of a zone before the first Pod of another zone is
    bound."""
    every_zone = [(spread(), node, True) for node in ("n0", "n1")]
    granted, view = placed(3, *every_zone, (spread(), "n2", False))
    assert closed(granted, view, spread()) == {"n0", "n1", "n2"}
    bound, view = placed(3, *every_zone, (spread(), "n2", True))
    assert closed(bound, view, spread()) == set()


def test_spread_counts_from_zero_with_too_few_domains() -> None:
    book, view = placed(3, *((spread(), node, True) for node in ("n0", "n1", "n2")))
    assert closed(book, view, spread(minimum=4)) == {"n0", "n1", "n2"}


def test_spread_closes_nodes_without_the_label() -> None:
    book, view = placed(3)
    bare = view.with_node("bare", replace(view.nodes["n0"], name="bare", slurm_name="bare", labels={}))
    assert closed(book, bare, spread()) == {"bare"}


@pytest.mark.parametrize("constraints", [alone(), spread(skew=2000)], ids=["anti-affinity", "spread"])
def test_pods_of_one_template_cost_little_at_1000_nodes(constraints: PodConstraints) -> None:
    """Compares the CPU time with the time for the same number of Pods without constraints, at 1,000
    Nodes."""

    def seconds(of: PodConstraints) -> float:
        names = tuple(f"n{number}" for number in range(1000))
        world = QuickWorld(PlacementConfig(), names, jobs_per_node=100)
        clock = CpuClock()
        for number in range(300):
            uid = world.create_pod(constraints=of)
            world.hear_all()
            world.carry_out_all()
            assert world.pods[uid].scheduling.allocation, number
        return clock.read()

    assert seconds(constraints) < 10 * seconds(plain())


@pytest.mark.parametrize(
    "rule", [alone(), spread(skew=2000), with_port()], ids=["apart", "spread", "port"]
)
def test_lookup_costs_no_more_if_each_pod_has_its_own_label(rule: PodConstraints) -> None:
    """For example, each Pod of an Indexed Job or a StatefulSet has a label of its own."""

    def seconds(indexes: list[str]) -> float:
        pods = [rule._replace(labels=rule.labels | {("index", each)}) for each in (*indexes, "last")]
        book, view = placed(20, *((each, f"n{n % 20}", True) for n, each in enumerate(pods[:-1])))
        closed(book, view, pods[-1])
        clock = CpuClock()
        for _ in range(1000):
            book.closed_to(pods[-1], ANYWHERE, view)
        return clock.read()

    assert seconds([str(number) for number in range(2000)]) < 5 * seconds(["0"] * 2000)


def test_pods_whose_place_depends_on_other_pods_are_not_nominated() -> None:
    now, allocation = datetime(2026, 11, 28, tzinfo=UTC), Allocation(1, "n1")
    words = "1 node(s) didn't satisfy existing pods anti-affinity rules"
    seen = pod()
    assert nomination(seen, allocation, now)["status"]["nominatedNodeName"] == "n1"
    for apart in (changed(seen, constraints=alone()), changed(seen, node_rejection=words)):
        assert nomination(apart, allocation, now)["status"]["nominatedNodeName"] is None


# Any mixture

_TEMPLATES = [alone(), alone("b"), alone(key=ZONE), spread(), spread("b", 2), with_port(), plain()]
_WHAT = ["create", "create", "remove", "live", "create unmanaged", "remove unmanaged"]
_STEP = st.tuples(st.sampled_from(_WHAT), st.integers(0, 6))


def take(world: World, what: str, index: int) -> None:
    """Takes a step of `_WHAT`."""
    if what == "create":
        world.create_pod(constraints=_TEMPLATES[index])
    elif what == "create unmanaged":
        world.unmanaged.append((_TEMPLATES[index], world.nodes[index % len(world.nodes)]))
    elif what == "remove" and world.pods:
        world.remove_pod(sorted(world.pods)[index % len(world.pods)])
    elif what == "remove unmanaged" and world.unmanaged:
        world.unmanaged.pop(index % len(world.unmanaged))
    else:
        live(world, 1)


@settings(max_examples=60, deadline=None)
@given(steps=st.lists(_STEP, max_size=25), fast=st.booleans())
def test_any_mixture_is_placed_as_kube_scheduler_would(steps: list[tuple[str, int]], fast: bool) -> None:
    """At the end, no Pod waits for which kube-scheduler would find a Node, and no job holds a Node that
    no Pod needs.

    kube-scheduler rejects a granted Node and offers other Nodes for two reasons only: a leaving Pod
    makes the zone of the granted Node too full, or the ledger does not know a Pod.
    """
    world = world_of(6, fast=fast)
    for what, index in steps:
        take(world, what, index)
    calm_down(world, rounds=120)
    unforeseen = {"remove", "create unmanaged"}
    assert not world.rejected_for_pods.total() or unforeseen & {what for what, _ in steps}
    for uid, each in world.pods.items():
        if each.life.node is None:
            free = [name for name in world.nodes if not world.closed_by_pods(each, name)]
            assert not free, f"{uid} waits, and {free} are open: {world.ledger.record_of(uid)}"
            assert not [job for job in world.live_jobs(uid) if job.state.running]
