"""Tests of facts that the ledger checks with Slurm before an action on a Pod or a job."""

from __future__ import annotations

from dataclasses import replace

import pytest

from extender.placement.recovery import recovered
from extender.pod_request.pod import Life, Pod, parse_pod
from extender.record.config import PlacementConfig
from extender.record.events import EvictPod, Failure, Remedy, Submit
from extender.record.states import State
from tests.builders import TRANSLATION, changed, kube_node, moment, placeholder_job, pod, pod_manifest
from tests.placement.ledger_world import NODES, REQUEST, World
from wellknown.allocation import Allocation
from wellknown.job_key import PlaceholderKey
from wellknown.names import ATTEMPT, CONDITION, JOB_ID, NODE, Reason

AWAY = Failure(Remedy.AGAIN, "slurmctld is down")


@pytest.mark.parametrize("seen_before", [False, True])
def test_pod_is_not_evicted_for_a_forgotten_start_while_slurm_is_away(seen_before: bool) -> None:
    """slurmctld was killed just after the start of the job and forgot the start, and starts the job
    again later."""
    world = World(replace(PlacementConfig(), fast_path=False))
    uid = world.bound_pod()
    world.pass_time(5.0)
    world.forget_the_start(uid)
    if seen_before:  # slurmctld answers once: the job waits
        world.pass_time(6.0)
        world.poll_alone()
    for _ in range(12):
        world.pass_time(5.0)
        while world.effects:
            world.finish(world.effects.pop(0), AWAY)
    world.poll()
    world.pass_time(6.0)
    assert not any(isinstance(effect, EvictPod) for effect in world.settle())
    assert world.state_of(uid) is State.BOUND


def test_allocation_forged_during_the_submission_is_ignored(world: World) -> None:
    uid, submit = world.pod_and_submission()
    granted = world.do(submit)
    real = world.jobs[submit.job_id].nodes[0]
    other = next(node for node in NODES if node != real)
    forged = Allocation(submit.job_id, other, "gpu:8(IDX:0-7)")
    world.change_pod(uid, job_id=submit.job_id, allocation=forged)
    world.hear()
    world.finish(submit, granted)
    world.settle()
    world.poll()
    allocated = world.ledger.allocated(uid)
    assert allocated is None or allocated[1].slot == Allocation(submit.job_id, real)


def test_no_job_is_requested_for_a_bound_pod_that_the_policy_forbids(world: World) -> None:
    """A user has bound a Pod that no rule of the policy allows, and has written a job id onto the
    Pod."""
    job_id = PlaceholderKey(world.rules.cluster, "default", "p", "p", 1).job_id(world.rules.ids)
    refused = replace(REQUEST, problems=("no rule of the policy",))
    bound = Pod("p", "default", "p", "0", refused, Life("n1"), created="0001")
    world.write(changed(bound, job_id=job_id, allocation=Allocation(job_id, "n1")))
    asked = list(world.settle())
    for _ in range(6):
        world.poll()
        asked += world.settle()
        world.pass_time(1.0)
    assert not any(isinstance(effect, Submit) for effect in asked)


def test_pod_with_a_throttled_eviction_is_evicted_if_its_job_is_forgotten() -> None:
    at = moment(kube_node("n1"))
    job = placeholder_job(pod(uid="u1"), node="n1")
    told = {"type": CONDITION, "status": "False", "reason": Reason.EVICTION_THROTTLED}
    notes = {ATTEMPT: "1", JOB_ID: str(job.id), NODE: "n1"}
    manifest = pod_manifest(uid="u1", gates=(), node="n1", annotations=notes)
    manifest["status"]["conditions"] = [told]
    held = parse_pod(manifest, TRANSLATION)
    record, _ = recovered((held,), (), at)
    assert record is not None
    assert (record.state, record.job.over) == (State.EVICTING, True)
    record, _ = recovered((held,), (job,), at)
    assert record is not None
    assert record.state is State.BOUND
