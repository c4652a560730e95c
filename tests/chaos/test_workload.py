"""Tests of the workload: no early deletion by the workload may hide a missing eviction."""

from dataclasses import replace
from typing import Any

import pytest

from tests.chaos import workload
from tests.chaos.anomalies import UNBOUND_LEAKS, Since
from tests.chaos.checker import Causes, Checker
from tests.chaos.history import SeenJob, SeenPod
from tests.chaos.plan import Fate, PodPlan
from tests.chaos.workload import Task, Workload

PLAN = PodPlan(0.0, "p", 2, 0, Fate.SLOWLY, 10.0, "main", 5, "root")
BOUND = SeenPod("u", "p", "n1", "Running", deleting=False, cpus=2, gpus=0, job_id=1)
LEAVES_SLOWLY = SeenPod("u", "p", "n1", "Running", deleting=True, cpus=2, gpus=0, job_id=1, slowly=True)
CANCELLED = SeenJob(1, "p@default", "root", "CANCELLED", "n1", 2, "u")


class Planned(Workload):
    """A workload that only notes its tasks and requests."""

    def __init__(self, causes: Causes) -> None:
        self.due: list[tuple[float, Task]] = []
        self._causes = causes
        self.sent: list[str] = []

    def at(self, at: float, task: Task) -> None:
        self.due.append((at, task))

    def _insist(self, what: str, ask: object) -> None:
        del ask
        self.sent.append(what)

    def _slurm(self, what: str, program: str, *arguments: str, **how: str) -> None:
        del program, arguments, how
        self.sent.append(what)


def test_pod_left_with_a_long_grace_is_a_violation_before_its_deletion() -> None:
    causes = Causes()
    actors, checker = Planned(causes), Checker(causes, {"n1": 8})
    actors.plan_pod(PLAN)
    when = {}
    for at, task in actors.due:
        task()
        when[actors.sent[-1]] = at
    assert list(when) == ["create", workload.SLOWLY, "cancel", "delete"]
    checker.pod_seen(1.0, BOUND)
    checker.pod_seen(when[workload.SLOWLY], LEAVES_SLOWLY)
    for second in range(int(when["cancel"]), int(when["delete"])):
        checker.jobs_seen(second, second, Since(0.0, 0.0), [CANCELLED])
    assert [found.kind for found in checker.violations] == [UNBOUND_LEAKS]


def test_adopted_pod_is_deleted_soon_after_its_job_is_gone() -> None:
    actors = Planned(Causes())
    actors.plan_pod(replace(PLAN, partition=""))
    deleted, _, cleaned_up = (at for at, _ in actors.due[1:])
    assert cleaned_up - deleted <= 12.0


@pytest.mark.parametrize(("grace_s", "forced"), [(0, {"p"}), (None, set()), (5, set())])
def test_deletion_by_force_is_recorded(grace_s: int | None, forced: Any) -> None:
    causes = Causes()
    Planned(causes).delete("p", grace_s)
    assert causes.forced == forced
