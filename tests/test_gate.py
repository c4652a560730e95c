"""Whether a node is clear: what the ledger knows, what Slurm runs, what kube-apiserver has bound."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, cast

import pytest

from extender.gate import Gate, NotLeading
from extender.kubernetes_api import KubernetesApi
from extender.placement.events import PodVanished
from extender.placement.identity import TRIES_AT_RECOVERY, PlaceholderKey
from extender.placement.ledger import Ledger
from extender.placement.placeholder import State
from extender.placement.rules import Rules
from extender.placement.workload import ATTEMPT, JOB_ID, NODE, Dialect
from slurm_client.errors import Unreachable
from slurm_client.model import Job, JobState
from slurm_client.protocol import Slurm
from tests.builders import RULES, Manifest, pod_manifest
from tests.placement.ledger_world import VIEW, World
from tests.placement.test_ledger import bound_pod, job_id_of, state_of


class Site:
    """A node's Prolog, and the world that it asks about."""

    def __init__(self) -> None:
        self.world = World()
        self.leads = True
        self.listed: list[Manifest] = []
        self.nudged: list[int] = []
        self.asked: list[list[int]] = []
        self.outage: Exception | None = None
        self.gate = Gate(
            cast(KubernetesApi, self),
            cast(Slurm, self),
            Dialect(),
            lambda: VIEW,
            self._ledger,
            self._nudge,
        )

    def _ledger(self) -> Ledger | None:
        return self.world.ledger if self.leads else None

    def _nudge(self, job_id: int) -> None:
        self.nudged.append(job_id)

    async def states(self, ids: Iterable[int]) -> Mapping[int, JobState]:
        if self.outage is not None:
            raise self.outage
        self.asked.append(list(ids))
        jobs = self.world.jobs
        return {job_id: jobs[job_id].state for job_id in self.asked[-1] if job_id in jobs}

    async def job(self, job_id: int) -> Job | None:
        return self.world.jobs.get(job_id)

    async def list(self, kind: str, selector: str) -> Manifest:
        assert (kind, selector.split(",", maxsplit=1)[0]) == ("pods", "spec.nodeName=n1")
        return {"items": self.listed}

    def bound(self, uid: str, job_id: int) -> None:
        """kube-apiserver has it bound by a job, though the ledger has not heard."""
        self.binds(uid, {JOB_ID: str(job_id), NODE: "n1"})

    def binds(self, uid: str, notes: Mapping[str, str]) -> None:
        """It is bound with these annotations of ours, by whomever."""
        self.listed.append(pod_manifest("late", uid=uid, node="n1", gates=(), annotations=notes))


@pytest.fixture
def site() -> Site:
    return Site()


async def test_a_node_without_pods_is_clear(site: Site) -> None:
    assert await site.gate.in_the_way("n1") == ()


async def test_a_node_for_which_no_node_stands_is_clear(site: Site) -> None:
    assert await site.gate.in_the_way("login-1") == ()


async def test_a_pod_whose_job_runs_is_in_nobodys_way(site: Site) -> None:
    uid = bound_pod(site.world)
    assert await site.gate.in_the_way("n1") == ()
    assert site.asked[0] == [job_id_of(site.world, uid)]


async def test_a_pod_whose_job_ended_this_moment_is_in_the_way_and_its_end_is_news(site: Site) -> None:
    job_id = job_id_of(site.world, bound_pod(site.world))
    site.world.disturb(job_id, "PREEMPTED")
    assert await site.gate.in_the_way("n1") == ("default/p1",)
    assert site.nudged == [job_id]


async def test_a_pod_that_is_being_evicted_is_in_the_way_until_it_is_gone(site: Site) -> None:
    site.world.disturb(job_id_of(site.world, bound_pod(site.world)), "CANCELLED")
    site.world.ask()
    site.world.answer()
    assert await site.gate.wait("n1", 0.15) == ("default/p1",)
    site.world.settle()
    assert await site.gate.wait("n1", 0.15) == ()


async def test_a_pod_that_has_its_jobs_grace_time_to_leave_is_in_the_way_once_that_is_over(
    site: Site,
) -> None:
    """What the job has is nobody else's before."""
    uid = bound_pod(site.world)
    job_id = job_id_of(site.world, uid)
    site.world.begin_grace(job_id)
    site.world.read_graces()
    assert state_of(site.world, uid) is State.EVICTING
    assert await site.gate.in_the_way("n1") == ()
    site.world.disturb(job_id, "PREEMPTED")
    assert await site.gate.in_the_way("n1") == ("default/p1",)
    assert site.nudged == [job_id]


async def test_a_pod_whose_job_was_started_again_elsewhere_is_in_the_way(site: Site) -> None:
    uid = bound_pod(site.world)
    job_id = job_id_of(site.world, uid)
    site.world.begin_grace(job_id)
    site.world.read_graces()
    site.world.jobs[job_id] = replace(site.world.jobs[job_id], nodes=("n2",))
    assert await site.gate.in_the_way("n1") == ("default/p1",)


async def test_a_pod_whose_start_slurm_may_have_forgotten_has_the_job_that_runs_where_it_is(
    site: Site,
) -> None:
    """A killed slurmctld may have started it elsewhere, before anybody asked."""
    site.world = World(replace(Rules(), fast_path=False))
    uid = site.world.create_pod()
    site.world.catch_up()
    assert state_of(site.world, uid) is State.BOUND
    assert await site.gate.in_the_way("n1") == ()
    job_id = job_id_of(site.world, uid)
    site.world.jobs[job_id] = replace(site.world.jobs[job_id], nodes=("n2",))
    assert await site.gate.in_the_way("n1") == ("default/p1",)


async def test_a_pod_that_the_ledger_has_not_heard_of_is_asked_for(site: Site) -> None:
    uid = bound_pod(site.world)
    job_id = job_id_of(site.world, uid)
    site.world.tell(PodVanished(uid))
    site.bound(uid, job_id)
    assert await site.gate.in_the_way("n1") == ()
    site.bound("u10", own_id("u10"))
    assert await site.gate.in_the_way("n1") == ("default/late",)


def own_id(uid: str, attempt_try: int = 0) -> int:
    return PlaceholderKey(RULES.cluster, "default", "late", uid, 1, attempt_try).job_id(RULES.ids)


@pytest.mark.parametrize(
    "notes",
    [
        {},
        {ATTEMPT: "1"},
        {ATTEMPT: "1", NODE: "n1"},
        {JOB_ID: str(own_id("u10")), NODE: "n2"},
        {JOB_ID: str(own_id("u11")), NODE: "n1"},
    ],
    ids=["nothing", "attempt", "node", "elsewhere", "another's"],
)
async def test_a_pod_that_never_had_a_job_of_its_own_there_is_in_nobodys_way(
    site: Site, notes: dict[str, str]
) -> None:
    """Anybody may bind a Pod that names our scheduler, to any node."""
    site.binds("u10", notes)
    assert await site.gate.in_the_way("n1") == ()


async def test_a_pod_whose_job_had_a_late_id_is_in_the_way_while_slurm_remembers_the_job(
    site: Site,
) -> None:
    """It is none of the ids that are computed from its uid; the job has its key all the same."""
    uid = bound_pod(site.world)
    job = site.world.jobs.pop(job_id_of(site.world, uid))
    site.world.tell(PodVanished(uid))
    late = own_id(uid, TRIES_AT_RECOVERY)
    site.world.jobs[late] = replace(job, id=late)
    site.bound(uid, late)
    assert await site.gate.in_the_way("n1") == ()
    site.world.disturb(late, "PREEMPTED")
    assert await site.gate.in_the_way("n1") == ("default/late",)


async def test_a_pod_whose_job_ended_before_its_leader_did_is_in_the_way(site: Site) -> None:
    """Whether Slurm still knows the job, or the next leader has the Pod's word alone."""
    uid = bound_pod(site.world)
    job_id = job_id_of(site.world, uid)
    site.world.disturb(job_id, "PREEMPTED")
    site.world.restart()
    assert await site.gate.in_the_way("n1") == ("default/p1",)
    del site.world.jobs[job_id]
    site.world.restart()
    assert await site.gate.in_the_way("n1") == ("default/p1",)


ANOTHERS = str(PlaceholderKey(RULES.cluster, "default", "p2", "u2", 1))


@pytest.mark.parametrize("lie", [{"admin_comment": ANOTHERS}, {"nodes": ("n2",)}])
async def test_what_a_pod_says_of_its_job_is_slurms_to_confirm(site: Site, lie: dict[str, Any]) -> None:
    """The job that it names runs: for somebody else, or on another node."""
    uid = bound_pod(site.world)
    job_id = job_id_of(site.world, uid)
    site.world.tell(PodVanished(uid))
    site.world.jobs[job_id] = replace(site.world.jobs[job_id], **lie)
    site.bound(uid, job_id)
    assert await site.gate.in_the_way("n1") == ("default/late",)


async def test_what_a_pod_deleted_by_force_has_is_its_own_until_its_containers_have_ended(
    site: Site,
) -> None:
    """While its job runs Slurm gives nobody what it has; when that has ended, nobody comes in."""
    uid = bound_pod(site.world)
    job_id = job_id_of(site.world, uid)
    site.world.force_delete(uid)
    site.world.settle()
    assert await site.gate.in_the_way("n1") == ()
    assert site.world.jobs[job_id].state.running
    site.world.disturb(job_id, "PREEMPTED")
    assert await site.gate.in_the_way("n1") == ("default/p1",)
    site.world.pass_time(34.9)
    assert await site.gate.in_the_way("n1") == ("default/p1",)
    site.world.pass_time(0.2)
    assert await site.gate.in_the_way("n1") == ()


async def test_a_pod_deleted_by_force_after_its_job_had_ended_is_in_the_way(site: Site) -> None:
    uid = bound_pod(site.world)
    site.world.disturb(job_id_of(site.world, uid), "CANCELLED")
    site.world.ask()
    site.world.answer()
    site.world.effects.clear()
    site.world.force_delete(uid)
    site.world.settle()
    assert await site.gate.in_the_way("n1") == ("default/p1",)
    site.world.pass_time(35.1)
    assert await site.gate.in_the_way("n1") == ()


@pytest.mark.parametrize("node", ["n1", "login-1"])
async def test_only_who_leads_knows(site: Site, node: str) -> None:
    site.leads = False
    with pytest.raises(NotLeading):
        await site.gate.in_the_way(node)


async def test_while_slurm_does_not_answer_nobody_knows(site: Site) -> None:
    bound_pod(site.world)
    site.outage = Unreachable("slurmctld is down")
    with pytest.raises(Unreachable):
        await site.gate.wait("n1", 5)
