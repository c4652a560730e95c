"""Tests of the checker: each history that violates an invariant has a violation, and no other
history."""

from collections.abc import Callable, Collection
from dataclasses import replace
from math import inf

import pytest

from tests.chaos.anomalies import DUPLICATES, UNBOUND_LEAKS, UNDERSIZED, UNDONE, WRONG_KILLS, Since
from tests.chaos.checker import WATCHED_S, Causes, Checker
from tests.chaos.history import SeenJob, SeenNode, SeenPod
from tests.chaos.overlap import Stay, overlaps
from tests.chaos.plan import Mischief, Outage
from tests.chaos.signals import Kind, Signal

WAITING = SeenPod("u", "p", "", "Pending", deleting=False, cpus=2, gpus=0, job_id=1)
BOUND = replace(WAITING, node="n1", phase="Running")
DELETED = replace(BOUND, deleting=True)
RUNNING = SeenJob(1, "p@default", "root", "RUNNING", "n1", 2, "u")
PENDING = replace(RUNNING, state="PENDING", node="")
CANCELLED = replace(RUNNING, state="CANCELLED")
SECOND = replace(RUNNING, id=2)
NATIVE = SeenJob(9, "native-1", "alice", "RUNNING", "n1", 1, "")

Seen = SeenPod | list[SeenJob] | None
NOBODY_KNOWS = Since(None, None)


def verdict(
    *history: tuple[float, Seen],
    causes: Causes | None = None,
    calm_since: float | None = None,
    signals: Collection[Signal] = (),
) -> list[str]:
    """Returns the kinds of violations. `history` has the time of each observation: of a Pod, of a list
    of all jobs, or of the Pod's end (None)."""
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


STARTED: tuple[tuple[float, Seen], ...] = (1, BOUND), (2, [RUNNING])
EVICTED = *STARTED, (3, [CANCELLED]), (4, DELETED)
ELSEWHERE = replace(RUNNING, node="n2")


def test_history_without_faults_has_no_violation() -> None:
    begin = (1, WAITING), (2, [PENDING]), (3, [RUNNING]), (4, BOUND), (5, [RUNNING])
    end = (6, DELETED), (7, [CANCELLED]), (8, None)
    assert verdict(*begin, *end, causes=Causes(deleted={"p": 0.0})) == []


@pytest.mark.parametrize(
    ("history", "kind"),
    [
        ([*STARTED, (3, [RUNNING, SECOND])], DUPLICATES),
        ([(1, WAITING), (2, [PENDING]), (3, BOUND), (4, [PENDING])], UNBOUND_LEAKS),
        ([(1, WAITING), (2, [ELSEWHERE]), (3, BOUND), (4, [ELSEWHERE])], UNBOUND_LEAKS),
        ([*STARTED, (3, DELETED)], WRONG_KILLS),
        ([*STARTED, (3, None)], WRONG_KILLS),
        (EVICTED, WRONG_KILLS),  # no administrator cancelled the job
    ],
)
def test_fault_is_found_at_once(history: list[tuple[float, Seen]], kind: str) -> None:
    assert verdict(*history) == [kind]


def test_second_live_job_after_a_rollback_of_slurmctld_may_last_a_while() -> None:
    causes = Causes(slurmctld_killed=[2.5])
    seen = (1, BOUND), (2, [CANCELLED, SECOND]), (4, [RUNNING, SECOND]), (6, [CANCELLED, SECOND])
    assert verdict(*seen, causes=causes) == []
    later = (30, [CANCELLED, SECOND]), (31, [RUNNING, SECOND])
    assert verdict(*seen, *later, causes=causes) == [DUPLICATES]


def test_second_live_job_that_outlasts_the_grace_is_a_violation() -> None:
    double = [(float(at), [RUNNING, SECOND]) for at in range(4, 30)]
    seen = verdict(
        (1, BOUND), (2, [SECOND]), *double, causes=Causes(slurmctld_killed=[2.5]), calm_since=5.0
    )
    assert seen == [DUPLICATES]


def test_jobs_requested_before_a_binding_do_not_judge_the_binding() -> None:
    checker = Checker(Causes(), {"n1": 8})
    checker.pod_seen(1, WAITING)
    checker.jobs_seen(2, 6, NOBODY_KNOWS, [PENDING])
    checker.pod_seen(3, BOUND)
    checker.jobs_seen(7, 8, NOBODY_KNOWS, [RUNNING])
    checker.conclude()
    assert checker.violations == []


@pytest.mark.parametrize(("cpus", "gpus"), [(1, 2), (2, 1)])
def test_pod_bound_with_a_shrunk_job_is_a_violation(cpus: int, gpus: int) -> None:
    pod = replace(BOUND, gpus=2)
    job, small = replace(RUNNING, gpus=2), replace(RUNNING, cpus=cpus, gpus=gpus)
    assert verdict((1, pod), (2, [job])) == []
    assert verdict((1, pod), (2, [small])) == [UNDERSIZED]
    assert verdict((1, pod), (2, [small, replace(job, id=2)]))[0] == UNDERSIZED


SMALL, MOVED = replace(RUNNING, cpus=1), replace(RUNNING, partition="high")
ASKS = replace(BOUND, partitions=frozenset({"main", "low"}))
GUEST = replace(BOUND, managed=False, job_id=None)


@pytest.mark.parametrize(
    ("pod", "jobs", "found"),
    [
        # No violation, because the Pod is not bound by the job that was shrunk.
        (WAITING, [SMALL], []),
        (replace(BOUND, job_id=2), [replace(SMALL, state="COMPLETING"), SECOND], []),
        (DELETED, [SMALL], []),
        (GUEST, [SMALL], []),
        # The job is in a partition that the Pod did not request.
        (ASKS, [replace(RUNNING, partition="low")], []),
        (ASKS, [MOVED], [UNDERSIZED]),
        (ASKS, [replace(RUNNING, partition="main"), replace(MOVED, id=2)], [DUPLICATES]),
        (BOUND, [MOVED], []),
        (replace(ASKS, node="", job_id=None), [MOVED], []),
    ],
)
def test_size_and_partition_of_the_job_of_a_bound_pod_are_checked(
    pod: SeenPod, jobs: list[SeenJob], found: list[str]
) -> None:
    assert verdict((1, pod), (2, jobs), causes=Causes(deleted={"p": 0})) == found


WELL: Callable[[float, float], bool] = lambda *_: True  # noqa: E731


def left(pod: SeenPod, causes: Causes) -> Checker:
    """Returns a checker after observations of a Pod: surely there at 5, and gone at 6."""
    checker = Checker(causes, {"n1": 2})
    checker.pod_seen(1, pod)
    checker.pod_there(5, "u")
    checker.pod_gone(6, "u")
    return checker


LINGERS, FORCED = replace(BOUND, grace_s=7), Causes(deleted={"p": 5.5}, forced={"p"})


def test_containers_of_a_pod_deleted_by_force_stay_for_its_grace() -> None:
    checker = left(LINGERS, FORCED)
    stays = checker.lingering_pods(WELL)
    assert stays == [Stay("p", "n1", 2, 1, 12)]
    native = Stay("native-1", "n1", 1, 10, 20)
    assert [each.seconds for each in overlaps([native], stays, checker.node_cpus)] == [2]
    assert list(overlaps([replace(native, first=12.0)], stays, checker.node_cpus)) == []


def test_change_of_cores_splits_the_stay_of_a_bound_pod() -> None:
    checker, before, after = Checker(Causes(), {"n1": 8}), frozenset({0, 1}), frozenset({2, 3})
    checker.pod_seen(1, replace(BOUND, cores=before))
    checker.pod_there(5, "u")
    checker.pod_seen(6, replace(BOUND, cores=after))
    checker.pod_there(9, "u")
    stay = Stay("p", "n1", 2, 1, 5, cores=before)
    assert checker.lingering_pods() == [stay, replace(stay, first=6, last=9, cores=after)]


def test_cores_of_a_native_job_are_known_unless_they_changed() -> None:
    checker, cores = Checker(Causes(), {"n1": 8}), frozenset({0})
    checker.jobs_seen(1.0, 1.1, NOBODY_KNOWS, [replace(NATIVE, cores=cores)])
    assert checker.cores_of(NATIVE.id, "n1") == cores
    assert checker.cores_of(NATIVE.id, "n2") == frozenset()
    checker.jobs_seen(2.0, 2.1, NOBODY_KNOWS, [replace(NATIVE, cores=frozenset({1}))])
    assert checker.cores_of(NATIVE.id, "n1") == frozenset()


def test_stay_of_a_pod_is_not_extended_in_a_disturbed_time() -> None:
    spans = list[tuple[float, float]]()

    def disturbed(begin: float, end: float) -> bool:
        spans.append((begin, end))
        return False

    assert left(LINGERS, FORCED).lingering_pods(disturbed) == [Stay("p", "n1", 2, 1, 5)]
    assert spans == [(5 - WATCHED_S, 12)]


def test_pod_ended_by_its_kubelet_leaves_no_containers() -> None:
    gone = [Stay("p", "n1", 2, 1, 5)]
    assert left(LINGERS, Causes(deleted={"p": 5.5})).lingering_pods(WELL) == gone
    assert left(replace(LINGERS, phase="Succeeded"), FORCED).lingering_pods(WELL) == gone
    assert left(replace(LINGERS, deleting=True), FORCED).lingering_pods(WELL) == gone
    assert left(replace(LINGERS, node=""), FORCED).lingering_pods(WELL) == []


def test_mischief_on_a_job_is_no_cause_and_is_in_the_history_of_its_pod() -> None:
    checker = Checker(Causes(mischief=[(2.5, "u", "AdminComment overwritten")]), {"n1": 8})
    checker.pod_seen(1, BOUND)
    checker.jobs_seen(2, 2, NOBODY_KNOWS, [RUNNING])
    checker.pod_seen(3, DELETED)
    checker.conclude()
    assert [violation.kind for violation in checker.violations] == [WRONG_KILLS]
    assert (2.5, "its job is AdminComment overwritten") in checker.history("u")
    assert checker.placed_before(2) == set()


def test_time_that_an_unbindable_pod_holds_a_node_is_counted() -> None:
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


def test_pods_placed_before_a_time_are_known() -> None:
    checker = Checker(Causes(), {"n1": 8})
    checker.pod_seen(1, BOUND)
    checker.pod_seen(1, replace(WAITING, uid="v", name="q"))
    assert checker.placed_before(2) == {"u"}
    assert checker.placed_before(1) == set()
    assert checker.uids == {"p": "u", "q": "v"}


def test_pod_bound_long_after_the_end_of_its_job_is_a_violation() -> None:
    ended = (1, WAITING), (2, [RUNNING]), (3, [CANCELLED])
    assert verdict(*ended, (40, BOUND), (41, [CANCELLED])) == [UNBOUND_LEAKS]
    assert verdict(*ended, (5, BOUND), (6, [CANCELLED])) == []  # the Binding was on the way


def test_start_lost_by_a_killed_slurmctld_is_no_violation() -> None:
    seen = (1, WAITING), (2, [PENDING]), (3, BOUND), (6, [PENDING])
    assert verdict(*seen, causes=Causes(slurmctld_killed=[4.0])) == []


@pytest.mark.parametrize(
    "job", [replace(RUNNING, state=each) for each in ("TIMEOUT", "PREEMPTED")] + [ELSEWHERE]
)
def test_eviction_after_slurm_ended_or_moved_the_job_is_allowed(job: SeenJob) -> None:
    assert verdict(*STARTED, (3, [job]), (4, DELETED)) == []


@pytest.mark.parametrize("state", ["NODE_FAIL", "BOOT_FAIL"])
def test_eviction_after_a_node_failed_only_in_slurm_is_a_violation(state: str) -> None:
    assert verdict(*STARTED, (3, [replace(RUNNING, state=state)]), (4, DELETED)) == [WRONG_KILLS]


@pytest.mark.parametrize(
    ("history", "causes", "right"),
    [
        (EVICTED, Causes(cancelled={"p": 0.0}), True),
        # A later action of a person is no cause.
        ([*STARTED, (3, DELETED)], Causes(deleted={"p": 3.5}), False),
        ([*STARTED, (3, DELETED)], Causes(cancelled={"p": 3.5}), False),
        ([*STARTED, (3, DELETED)], Causes(deleted={"p": 2.5}), True),
        # During a suspension, another job may have got the cores.
        (EVICTED, Causes(mischief=[(2.5, "u", Mischief.SUSPEND)]), True),
        (EVICTED, Causes(mischief=[(2.5, "v", Mischief.SUSPEND)]), False),
        ([*STARTED, (3, DELETED)], Causes(mischief=[(3.5, "u", Mischief.SUSPEND)]), False),
        # If a person sets the node DOWN in Slurm, the Node still works in Kubernetes.
        (EVICTED, Causes(held_out={"n1": (Outage.DOWN, 2.5)}), False),
    ],
)
def test_eviction_needs_a_cause_before_it(
    history: list[tuple[float, Seen]], causes: Causes, right: bool
) -> None:
    assert verdict(*history, causes=causes) == ([] if right else [WRONG_KILLS])


def test_pod_is_adopted_after_its_job_runs_on_its_node() -> None:
    checker = Checker(Causes(), {"n1": 8})
    checker.pod_seen(1, GUEST)
    checker.jobs_seen(2, 2, NOBODY_KNOWS, [PENDING, replace(ELSEWHERE, id=2)])
    assert not checker.adopted
    checker.jobs_seen(3, 3, NOBODY_KNOWS, [RUNNING])
    assert checker.adopted == {"u"}


def test_unexplained_cancellation_of_a_native_job_is_a_violation() -> None:
    cancelled = (1, [NATIVE]), (2, [replace(NATIVE, state="CANCELLED")])
    assert verdict(*cancelled) == [WRONG_KILLS]
    assert verdict(*cancelled, causes=Causes(native_cancelled={"native-1"})) == []
    assert verdict((1, [NATIVE]), (2, [replace(NATIVE, state="COMPLETED")])) == []


def test_cancelled_job_is_no_cause_to_delete_an_adopted_pod() -> None:
    evicted = (1, GUEST), (2, [RUNNING]), (3, [CANCELLED]), (4, replace(GUEST, deleting=True))
    assert verdict(*evicted, causes=Causes(cancelled={"p": 0.0})) == [WRONG_KILLS]
    assert verdict(*evicted, causes=Causes(deleted={"p": 3.5})) == []


def test_preemption_in_the_log_of_slurmctld_is_a_cause() -> None:
    assert verdict(*EVICTED, signals=[Signal(2.5, Kind.PREEMPTED, 1)]) == []
    assert verdict(*EVICTED, signals=[Signal(2.5, Kind.CANCELLED, 1)]) == [WRONG_KILLS]


def test_changed_devices_are_a_cause_after_a_restart_of_slurmctld() -> None:
    told = replace(BOUND, deleting=True, gpus=1, told="SlurmDevicesChanged")
    evicted = (1, replace(BOUND, gpus=1)), (2, [replace(RUNNING, gpus=1)]), (4, told)
    assert verdict(*evicted, causes=Causes(state_lost=[3.0])) == []
    assert verdict(*evicted, causes=Causes(slurmctld_killed=[3.0])) == []
    assert verdict(*evicted, causes=Causes(state_lost=[0.5])) == [WRONG_KILLS]  # before the Binding
    assert verdict(*evicted) == [WRONG_KILLS]
    without = replace(told, gpus=0)
    assert verdict(*STARTED, (4, without), causes=Causes(state_lost=[3.0])) == [WRONG_KILLS]


OUT = SeenNode("n1", cordoned=False, told=True, tainted=True, in_service=False, reason="disk")
BACK = replace(OUT, in_service=True)


@pytest.mark.parametrize("how", [Outage.DRAIN, Outage.DOWN])
def test_node_drained_by_a_person_stays_drained(how: Outage) -> None:
    def undone(causes: Causes, node: SeenNode) -> list[str]:
        checker = Checker(causes, {"n1": 8})
        checker.nodes_seen(30.0, 30.1, NOBODY_KNOWS, [node])
        return [violation.kind for violation in checker.violations]

    held = {"n1": (how, 10.0)}
    assert undone(Causes(held_out=held), OUT) == []
    assert undone(Causes(held_out=held), BACK) == [UNDONE]
    assert undone(Causes(held_out={"n1": (how, inf)}), BACK) == []
    assert undone(Causes(held_out=held, slurmctld_killed=[12.0]), BACK) == []
    assert undone(Causes(held_out=held, slurmctld_killed=[29.0]), BACK) == [UNDONE]
    assert undone(Causes(held_out=held, state_lost=[29.0]), BACK) == []


def test_cordon_stays_after_slurm_lost_its_state() -> None:
    checker = Checker(Causes(held_out={"n1": (Outage.CORDON, 10.0)}, state_lost=[20.0]), {"n1": 8})
    checker.nodes_seen(30.0, 30.1, NOBODY_KNOWS, [replace(OUT, cordoned=True)])
    assert checker.violations == []
    checker.nodes_seen(31.0, 31.1, NOBODY_KNOWS, [OUT])
    assert [violation.kind for violation in checker.violations] == [UNDONE]


def test_process_unknown_to_slurm_is_disowned() -> None:
    causes = Causes(slurmctld_killed=[1.2])
    checker = Checker(causes, {"n1": 8, "n2": 8})
    checker.jobs_seen(1.0, 1.1, NOBODY_KNOWS, [NATIVE])
    checker.jobs_seen(2.0, 2.1, NOBODY_KNOWS, [replace(NATIVE, state="PENDING", node="")])
    checker.jobs_seen(3.0, 3.1, NOBODY_KNOWS, [replace(NATIVE, node="n2")])
    checker.jobs_seen(4.0, 4.1, NOBODY_KNOWS, [replace(NATIVE, node="n2", state="COMPLETING")])
    process = Stay("native-1", "n1", 1, 0.5, 1.5)
    assert not checker.disowned(process, 0.5)
    assert not checker.disowned(replace(process, first=1.2, last=1.9), 1.2)  # no request in this time
    assert checker.disowned(replace(process, last=2.5), 0.5)
    assert checker.disowned(replace(process, last=3.5), 0.5)
    assert not checker.disowned(replace(process, node="n2", first=2.5, last=4.5), 2.5)
    causes.slurmctld_killed[:] = [5.0]
    assert not checker.disowned(replace(process, last=2.5), 0.5)


def test_history_of_a_pod_has_events_of_both_systems_in_order() -> None:
    checker = Checker(Causes(), {"n1": 8})
    checker.pod_seen(1, WAITING)
    checker.jobs_seen(2, 2, NOBODY_KNOWS, [PENDING])
    checker.pod_seen(3, BOUND)
    checker.pod_gone(4, "u")
    words = ["Pod Pending job 1", "job 1 PENDING: 2 CPUs", "Pod Running on n1 job 1", "Pod gone"]
    assert [each for _, each in checker.history("u")] == words
