"""Tests of the plan of a run: the plan follows from the seed."""

from itertools import islice

from deploy.local.processes.proxy import FAULTS
from deploy.local.spec import ClusterSpec
from tests.chaos import plan
from tests.chaos.cluster_spec import CLOSED, HELD, MAIN, WINDOW

SPEC = ClusterSpec(nodes=5, external_nodes=1, replicas=2, links=True)


def first(seed: int, count: int, spec: ClusterSpec = SPEC) -> list[tuple[plan.Attack, ...]]:
    return list(islice(plan.storms(seed, spec), count))


def test_the_same_seed_makes_the_same_run() -> None:
    assert first(7, 20) == first(7, 20)
    for make in (plan.pods, plan.jobs, plan.odd_pods, plan.mischief):
        assert list(make(7, 100.0)) == list(make(7, 100.0))


def test_another_seed_makes_another_run() -> None:
    assert first(7, 1) != first(8, 1)
    assert list(plan.pods(7, 10.0)) != list(plan.pods(8, 10.0))


def test_a_longer_run_begins_like_a_shorter_one() -> None:
    shorter = list(plan.pods(7, 50.0))
    assert list(plan.pods(7, 100.0))[: len(shorter)] == shorter


def test_attacks_on_one_victim_do_not_overlap() -> None:
    for storm in first(3, 50):
        busy: dict[str, float] = {}
        for attack in storm:
            assert busy.get(attack.victim, 0.0) <= attack.at < plan.STORM_S
            busy[attack.victim] = attack.at + attack.lasts


def test_each_component_is_killed_and_paused_and_each_link_fails() -> None:
    attacks = [attack for storm in first(3, 100) for attack in storm]
    for how in (plan.KILL, plan.PAUSE):
        assert {a.target for a in attacks if a.how == how} == set(plan.victims(SPEC))
    faults = {(a.target, a.link, a.how) for a in attacks if a.link}
    assert len(faults) == 2 * 2 * (len(FAULTS) - 1)


def test_without_links_no_link_fails() -> None:
    alone = ClusterSpec(replicas=1)
    assert all(not attack.link for storm in first(3, 20, alone) for attack in storm)


def test_plan_of_fifteen_minutes_has_enough_pods_and_kills() -> None:
    planned = list(plan.pods(1, 900.0))
    assert len(planned) >= 1500
    assert len({pod.name for pod in planned}) == len(planned)
    assert 0 < sum(pod.fate is plan.Fate.STAY for pod in planned) <= 6
    kills = sum(attack.how == plan.KILL for storm in first(1, 14) for attack in storm)
    assert kills >= 130  # each of the 14 failovers kills two more


def test_short_run_has_each_kind_of_mischief_and_odd_pod() -> None:
    assert {one.how for one in plan.mischief(1, 100.0)} == set(plan.Mischief)
    planned = list(plan.odd_pods(1, 100.0))
    assert {one.why for one in planned} == set(plan.Odd)
    assert len({one.name for one in planned}) == len(planned)
    assert any(one.owner == "alice" for one in plan.pods(1, 100.0))


def test_modest_owner_waits_in_the_partition_of_the_greedy_owner() -> None:
    bursts: dict[str, set[tuple[str, str]]] = {}
    for one in plan.odd_pods(1, 500.0):
        if one.why in (plan.Odd.GREEDY, plan.Odd.MODEST):
            bursts.setdefault(one.name.split("-")[1], set()).add((one.partition, one.comment))
    assert {tuple(where) for where in bursts.values()} == {((CLOSED, ""),), ((MAIN, HELD),)}


def test_greedy_owner_exceeds_the_window_before_a_modest_owner_comes() -> None:
    planned = [one for one in plan.odd_pods(1, 60.0) if one.why in (plan.Odd.GREEDY, plan.Odd.MODEST)]
    *greedy, modest = planned
    assert len(greedy) > WINDOW
    assert {(one.owner, one.partition) for one in greedy} == {("bob", modest.partition)}
    assert modest.owner == "alice"
    assert modest.at > max(one.at for one in greedy)
    end = min(one.at + one.lasts for one in greedy)
    assert abs(modest.at + modest.lasts - end) < 1
