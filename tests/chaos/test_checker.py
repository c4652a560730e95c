"""The checker condemns each history that violates an invariant, and no other."""

from collections.abc import Callable, Collection
from dataclasses import replace
from math import inf

import pytest

from tests.chaos.anomalies import DUPLICATES, UNBOUND_LEAKS, UNDERSIZED, UNDONE, WRONG_KILLS, Since
from tests.chaos.checker import WATCHED_S, Causes, Checker
from tests.chaos.history import SeenJob, SeenNode, SeenPod
from tests.chaos.overlap import Stay, overlaps
from tests.chaos.plan import Outage
from tests.chaos.signals import Kind, Signal

WAITING = SeenPod("u", "p", "", "Pending", deleting=False, cpus=2, gpus=0, job_id=1)
BOUND = replace(WAITING, node="n1", phase="Running")
DELETED = replace(BOUND, deleting=True)
RUNNING = SeenJob(1, "p@default", "root", "RUNNING", "n1", 2, "u")
PENDING = replace(RUNNING, state="PENDING", node="")
CANCELLED = replace(RUNNING, state="CANCELLED")
SECOND = replace(RUNNING, id=2)
NATIVE = SeenJob(9, "native-1", "alice", "RUNNING", "n1", 1, "")

History = list[tuple[float, SeenPod | list[SeenJob] | None]]


def verdict(
    history: History,
    causes: Causes | None = None,
    calm_since: float | None = None,
    signals: Collection[Signal] = (),
) -> list[str]:
    """The kinds of violations in a history of Pods, lists of all jobs, and the Pod's end (None)."""
    checker = Checker(causes or Causes(), {"n1": 8, "n2": 8})
    for at, seen in history:
        if isinstance(seen, SeenPod):
            checker.pod_seen(at, seen)
        elif seen is None:
            checker.pod_gone(at, "u")
        else:
            checker.jobs_seen(at, at, Since(calm_since, calm_since), seen)
    checker.conclude(signals)
    return [violation.kind for violation in checker.violations]


def test_a_life_without_faults_is_right() -> None:
    life: History = [
        (1, WAITING),
        (2, [PENDING]),
        (3, [RUNNING]),
        (4, BOUND),
        (5, [RUNNING]),
        (6, DELETED),
        (7, [CANCELLED]),
        (8, None),
    ]
    assert verdict(life, Causes(deleted={"p": 0.0})) == []


def test_a_second_live_job_is_wrong_at_once() -> None:
    assert verdict([(1, BOUND), (2, [RUNNING]), (3, [RUNNING, SECOND])]) == [DUPLICATES]


def test_a_second_live_job_that_a_rollback_of_slurmctlds_brought_back_is_put_up_with_for_a_while() -> (
    None
):
    causes = Causes(slurmctld_killed=[2.5])
    seen: History = [(1, BOUND), (2, [CANCELLED, SECOND]), (4, [RUNNING, SECOND])]
    assert verdict([*seen, (6, [CANCELLED, SECOND])], causes) == []
    later: History = [(6, [CANCELLED, SECOND]), (30, [CANCELLED, SECOND]), (31, [RUNNING, SECOND])]
    assert verdict([*seen, *later], causes) == [DUPLICATES]


def test_a_second_live_job_that_outlasts_the_calm_is_wrong_whatever_brought_it() -> None:
    causes = Causes(slurmctld_killed=[2.5])
    double: History = [(float(at), [RUNNING, SECOND]) for at in range(4, 30)]
    assert verdict([(1, BOUND), (2, [SECOND]), *double], causes, calm_since=5.0) == [DUPLICATES]


def test_a_pod_bound_while_its_job_waits_is_wrong() -> None:
    assert verdict([(1, WAITING), (2, [PENDING]), (3, BOUND), (4, [PENDING])]) == [UNBOUND_LEAKS]


def test_what_slurmctld_was_asked_before_and_answered_after_a_binding_says_nothing_of_it() -> None:
    checker = Checker(Causes(), {"n1": 8})
    checker.pod_seen(1, WAITING)
    checker.jobs_seen(2, 6, Since(None, None), [PENDING])
    checker.pod_seen(3, BOUND)
    checker.jobs_seen(7, 8, Since(None, None), [RUNNING])
    checker.conclude()
    assert checker.violations == []


@pytest.mark.parametrize(("cpus", "gpus"), [(1, 2), (2, 1)])
def test_a_pod_bound_by_a_job_that_was_shrunk_is_wrong(cpus: int, gpus: int) -> None:
    pod = replace(BOUND, gpus=2)
    job, small = replace(RUNNING, gpus=2), replace(RUNNING, cpus=cpus, gpus=gpus)
    assert verdict([(1, pod), (2, [job])]) == []
    assert verdict([(1, pod), (2, [small])]) == [UNDERSIZED]
    assert verdict([(1, pod), (2, [small, replace(job, id=2)])])[0] == UNDERSIZED


def test_a_job_that_was_shrunk_is_no_harm_where_its_pod_is_not_bound_by_it() -> None:
    small = replace(RUNNING, cpus=1)
    replaced = replace(BOUND, job_id=2)
    assert verdict([(1, WAITING), (2, [small])]) == []
    assert verdict([(1, replaced), (2, [replace(small, state="COMPLETING"), SECOND])]) == []
    assert verdict([(1, replace(BOUND, deleting=True)), (2, [small])], Causes(deleted={"p": 0})) == []
    assert verdict([(1, replace(BOUND, managed=False, job_id=None)), (2, [small])]) == []


def test_a_pod_bound_by_a_job_in_a_partition_that_it_never_asked_for_is_wrong() -> None:
    asks = replace(BOUND, partitions=frozenset({"main", "low"}))
    assert verdict([(1, asks), (2, [replace(RUNNING, partition="low")])]) == []
    moved = replace(RUNNING, partition="high")
    assert verdict([(1, asks), (2, [moved])]) == [UNDERSIZED]
    others = replace(moved, id=2)
    assert verdict([(1, asks), (2, [replace(RUNNING, partition="main"), others])]) == [DUPLICATES]
    assert verdict([(1, BOUND), (2, [moved])]) == []
    assert verdict([(1, replace(asks, node="", job_id=None)), (2, [moved])]) == []


WELL: Callable[[float, float], bool] = lambda *_: True  # noqa: E731


def left(pod: SeenPod, causes: Causes) -> Checker:
    """A checker of a Pod that was last surely there at 5, and gone at 6."""
    checker = Checker(causes, {"n1": 2})
    checker.pod_seen(1, pod)
    checker.pod_there(5, "u")
    checker.pod_gone(6, "u")
    return checker


def test_containers_of_a_pod_that_was_deleted_by_force_stay_for_its_grace() -> None:
    pod, causes = replace(BOUND, grace_s=7), Causes(deleted={"p": 5.5}, forced={"p"})
    checker = left(pod, causes)
    assert checker.lingering_pods(WELL) == [Stay("p", "n1", 2, 1, 12)]
    native = Stay("native-1", "n1", 1, 10, 20)
    assert [
        each.seconds for each in overlaps([native], checker.lingering_pods(WELL), checker.node_cpus)
    ] == [2]
    after = [replace(native, first=12.0)]
    assert list(overlaps(after, checker.lingering_pods(WELL), checker.node_cpus)) == []


def test_nobody_can_know_of_such_containers_where_not_all_was_well_before_and_until_they_ended() -> None:
    pod, causes = replace(BOUND, grace_s=7), Causes(deleted={"p": 5.5}, forced={"p"})
    spans = list[tuple[float, float]]()

    def disturbed(begin: float, end: float) -> bool:
        spans.append((begin, end))
        return False

    assert left(pod, causes).lingering_pods(disturbed) == [Stay("p", "n1", 2, 1, 5)]
    assert spans == [(5 - WATCHED_S, 12)]


def test_a_pod_that_its_kubelet_ended_leaves_no_containers() -> None:
    pod, causes = replace(BOUND, grace_s=7), Causes(deleted={"p": 5.5}, forced={"p"})
    gone = [Stay("p", "n1", 2, 1, 5)]
    assert left(pod, Causes(deleted={"p": 5.5})).lingering_pods(WELL) == gone
    assert left(replace(pod, phase="Succeeded"), causes).lingering_pods(WELL) == gone
    assert left(replace(pod, deleting=True), causes).lingering_pods(WELL) == gone
    assert left(replace(pod, node=""), causes).lingering_pods(WELL) == []


def test_what_is_done_to_a_job_is_no_cause_and_is_told_with_its_pod() -> None:
    checker = Checker(Causes(mischief=[(2.5, "u", "AdminComment overwritten")]), {"n1": 8})
    checker.pod_seen(1, BOUND)
    checker.jobs_seen(2, 2, Since(None, None), [RUNNING])
    checker.pod_seen(3, DELETED)
    checker.conclude()
    assert [violation.kind for violation in checker.violations] == [WRONG_KILLS]
    assert (2.5, "its job is AdminComment overwritten") in checker.history("u")
    assert checker.placed_before(2) == set()


def test_the_time_is_counted_for_which_a_pod_that_cannot_be_bound_holds_a_node() -> None:
    checker = Checker(Causes(), {"n1": 8})
    checker.pod_seen(0, replace(WAITING, odd="nowhere"))
    others = replace(RUNNING, id=8, uid="v")
    for at in range(1, 40):
        jobs = [RUNNING] if at < 31 else [CANCELLED]
        checker.jobs_seen(at, at, Since(0.0, 0.0), [*jobs, others])
    assert checker.held_s([]) == {"nowhere": [29.0]}
    for at in range(40, 46):
        checker.jobs_seen(at, at, Since(0.0, 0.0), [CANCELLED, SECOND])
    assert checker.held_s([]) == {"nowhere": [34.0]}
    checker.pod_seen(46, replace(WAITING, uid="v", name="q", odd="claim"))
    assert checker.held_s([]) == {"nowhere": [34.0], "claim": [38.0]}
    assert checker.held_s([(10, 15), (25, 33), (50, 60)])["nowhere"] == [34.0 - 5 - 5]


def test_pods_that_stay_on_their_nodes_are_told_from_others() -> None:
    checker = Checker(Causes(), {"n1": 8})
    checker.pod_seen(1, BOUND)
    checker.pod_seen(1, replace(WAITING, uid="v", name="q"))
    assert checker.placed_before(2) == {"u"}
    assert checker.placed_before(1) == set()
    assert checker.uids == {"p": "u", "q": "v"}


def test_a_pod_bound_elsewhere_than_its_job_runs_is_wrong() -> None:
    elsewhere = replace(RUNNING, node="n2")
    assert verdict([(1, WAITING), (2, [elsewhere]), (3, BOUND), (4, [elsewhere])]) == [UNBOUND_LEAKS]


def test_a_pod_bound_long_after_its_jobs_end_is_wrong() -> None:
    late: History = [(1, WAITING), (2, [RUNNING]), (3, [CANCELLED]), (40, BOUND), (41, [CANCELLED])]
    assert verdict(late) == [UNBOUND_LEAKS]
    under_way: History = [(1, WAITING), (2, [RUNNING]), (3, [CANCELLED]), (5, BOUND), (6, [CANCELLED])]
    assert verdict(under_way) == []


def test_a_start_that_slurmctld_forgot_is_not_held_against_the_binding() -> None:
    seen: History = [(1, WAITING), (2, [PENDING]), (3, BOUND), (6, [PENDING])]
    assert verdict(seen, Causes(slurmctld_killed=[4.0])) == []


def test_a_pod_deleted_without_a_cause_is_wrong() -> None:
    assert verdict([(1, BOUND), (2, [RUNNING]), (3, DELETED)]) == [WRONG_KILLS]
    assert verdict([(1, BOUND), (2, [RUNNING]), (3, None)]) == [WRONG_KILLS]


def test_a_cancellation_that_no_admin_made_is_no_cause() -> None:
    assert verdict([(1, BOUND), (2, [RUNNING]), (3, [CANCELLED]), (4, DELETED)]) == [WRONG_KILLS]


def test_an_eviction_with_a_cause_is_right() -> None:
    evicted: History = [(1, BOUND), (2, [RUNNING]), (3, [CANCELLED]), (4, DELETED)]
    assert verdict(evicted, Causes(cancelled={"p": 0.0})) == []
    for state in ("TIMEOUT", "NODE_FAIL", "PREEMPTED"):
        ended = replace(RUNNING, state=state)
        assert verdict([(1, BOUND), (2, [RUNNING]), (3, [ended]), (4, DELETED)]) == []
    moved = replace(RUNNING, node="n2")
    assert verdict([(1, BOUND), (2, [RUNNING]), (3, [moved]), (4, DELETED)]) == []


def test_what_a_person_does_afterwards_is_no_cause() -> None:
    evicted: History = [(1, BOUND), (2, [RUNNING]), (3, DELETED)]
    assert verdict(evicted, Causes(deleted={"p": 3.5})) == [WRONG_KILLS]
    assert verdict(evicted, Causes(cancelled={"p": 3.5})) == [WRONG_KILLS]
    assert verdict(evicted, Causes(deleted={"p": 2.5})) == []


def test_a_guest_is_adopted_when_its_job_runs_where_it_is() -> None:
    checker = Checker(Causes(), {"n1": 8})
    checker.pod_seen(1, replace(BOUND, managed=False, job_id=None))
    checker.jobs_seen(2, 2, Since(None, None), [PENDING, replace(RUNNING, id=2, node="n2")])
    assert not checker.adopted
    checker.jobs_seen(3, 3, Since(None, None), [RUNNING])
    assert checker.adopted == {"u"}


def test_a_native_job_that_nobody_cancelled_is_wrong() -> None:
    cancelled: History = [(1, [NATIVE]), (2, [replace(NATIVE, state="CANCELLED")])]
    assert verdict(cancelled) == [WRONG_KILLS]
    assert verdict(cancelled, Causes(native_cancelled={"native-1"})) == []
    assert verdict([(1, [NATIVE]), (2, [replace(NATIVE, state="COMPLETED")])]) == []


def test_a_cancellation_is_no_cause_to_delete_a_guest() -> None:
    adopted_pod = replace(BOUND, managed=False, job_id=None)
    evicted: History = [
        (1, adopted_pod),
        (2, [RUNNING]),
        (3, [CANCELLED]),
        (4, replace(adopted_pod, deleting=True)),
    ]
    assert verdict(evicted, Causes(cancelled={"p": 0.0})) == [WRONG_KILLS]
    assert verdict(evicted, Causes(deleted={"p": 3.5})) == []


def test_slurmctlds_log_and_a_node_set_down_are_causes() -> None:
    evicted: History = [(1, BOUND), (2, [RUNNING]), (3, [CANCELLED]), (4, DELETED)]
    assert verdict(evicted, signals=[Signal(2.5, Kind.PREEMPTED, 1)]) == []
    assert verdict(evicted, signals=[Signal(2.5, Kind.CANCELLED, 1)]) == [WRONG_KILLS]
    assert verdict(evicted, Causes(downed=[(2.5, "n1")])) == []
    assert verdict(evicted, Causes(downed=[(0.5, "n1")])) == [WRONG_KILLS]  # before it was bound
    late: History = [(1, BOUND), (2, [RUNNING]), (63, DELETED)]
    assert verdict(late, Causes(downed=[(2.5, "n1")])) == [WRONG_KILLS]
    assert verdict(evicted, Causes(downed=[(2.5, "n2")])) == [WRONG_KILLS]


def test_other_devices_are_a_cause_where_slurmctld_has_started_the_job_again() -> None:
    told = replace(BOUND, deleting=True, gpus=1, told="SlurmDevicesChanged")
    evicted: History = [(1, replace(BOUND, gpus=1)), (2, [replace(RUNNING, gpus=1)]), (4, told)]
    assert verdict(evicted, Causes(state_lost=[3.0])) == []
    assert verdict(evicted, Causes(slurmctld_killed=[3.0])) == []
    assert verdict(evicted, Causes(state_lost=[0.5])) == [WRONG_KILLS]  # before it was bound
    assert verdict(evicted) == [WRONG_KILLS]
    none: History = [(1, BOUND), (2, [RUNNING]), (4, replace(told, gpus=0))]
    assert verdict(none, Causes(state_lost=[3.0])) == [WRONG_KILLS]


OUT = SeenNode("n1", cordoned=False, told=True, tainted=True, in_service=False, reason="disk")
BACK = replace(OUT, in_service=True)


@pytest.mark.parametrize("how", [Outage.DRAIN, Outage.DOWN])
def test_a_node_that_a_person_took_out_stays_out(how: Outage) -> None:
    def undone(causes: Causes, node: SeenNode) -> list[str]:
        checker = Checker(causes, {"n1": 8})
        checker.nodes_seen(30.0, 30.1, Since(None, None), [node])
        return [violation.kind for violation in checker.violations]

    held = {"n1": (how, 10.0)}
    assert undone(Causes(held_out=held), OUT) == []
    assert undone(Causes(held_out=held), BACK) == [UNDONE]
    assert undone(Causes(held_out={"n1": (how, inf)}), BACK) == []
    assert undone(Causes(held_out=held, slurmctld_killed=[12.0]), BACK) == []
    assert undone(Causes(held_out=held, slurmctld_killed=[29.0]), BACK) == [UNDONE]
    assert undone(Causes(held_out=held, state_lost=[29.0]), BACK) == []


def test_a_cordon_stays_whatever_slurm_forgets() -> None:
    checker = Checker(Causes(held_out={"n1": (Outage.CORDON, 10.0)}, state_lost=[20.0]), {"n1": 8})
    checker.nodes_seen(30.0, 30.1, Since(None, None), [replace(OUT, cordoned=True)])
    assert checker.violations == []
    checker.nodes_seen(31.0, 31.1, Since(None, None), [OUT])
    assert [violation.kind for violation in checker.violations] == [UNDONE]


def test_a_process_that_slurm_does_not_know_of_is_disowned() -> None:
    causes = Causes(slurmctld_killed=[1.2])
    checker = Checker(causes, {"n1": 8, "n2": 8})
    checker.jobs_seen(1.0, 1.1, Since(None, None), [NATIVE])
    checker.jobs_seen(2.0, 2.1, Since(None, None), [replace(NATIVE, state="PENDING", node="")])
    checker.jobs_seen(3.0, 3.1, Since(None, None), [replace(NATIVE, node="n2")])
    checker.jobs_seen(4.0, 4.1, Since(None, None), [replace(NATIVE, node="n2", state="COMPLETING")])
    process = Stay("native-1", "n1", 1, 0.5, 1.5)
    assert not checker.disowned(process, 0.5)
    assert not checker.disowned(replace(process, first=1.2, last=1.9), 1.2)  # nobody asked
    assert checker.disowned(replace(process, last=2.5), 0.5)
    assert checker.disowned(replace(process, last=3.5), 0.5)
    assert not checker.disowned(replace(process, node="n2", first=2.5, last=4.5), 2.5)
    causes.slurmctld_killed[:] = [5.0]
    assert not checker.disowned(replace(process, last=2.5), 0.5)


def test_the_history_of_a_pod_tells_both_systems_sides_in_order() -> None:
    checker = Checker(Causes(), {"n1": 8})
    checker.pod_seen(1, WAITING)
    checker.jobs_seen(2, 2, Since(None, None), [PENDING])
    checker.pod_seen(3, BOUND)
    checker.pod_gone(4, "u")
    words = [words for _, words in checker.history("u")]
    assert words == [
        "Pod Pending job 1",
        "job 1 PENDING: 2 CPUs",
        "Pod Running on n1 job 1",
        "Pod gone",
    ]
