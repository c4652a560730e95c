"""Cases for the alerts about Pods and jobs."""

from __future__ import annotations

from tests.monitoring.cases.case import Case, Series

_FINDINGS = "slurm_extender_audit_findings"


def _queue(partition: str, startable: int, bound: str = "7x60") -> Series:
    of = f'{{partition="{partition}"}}'
    return {
        f"slurm_extender_startable_pods{of}": f"{startable}x60",
        f"slurm_extender_bound_pods_total{of}": bound,
    }


def _answers(taken: str) -> Series:
    return {
        'slurm_extender_waiting_pods{waits_for="answer"}': "2x60",
        'slurm_extender_placeholder_transitions_total{state="Queued"}': taken,
        'slurm_extender_placeholder_transitions_total{state="Allocated"}': "5x60",
    }


def _granted(pods: int, bound: str = "7x60") -> Series:
    return {
        'slurm_extender_waiting_pods{waits_for="binding"}': f"{pods}x60",
        'slurm_extender_placeholder_transitions_total{state="Bound"}': bound,
    }


CASES = (
    Case("SlurmExtenderQueueStalled", _queue("a", 3), _queue("a", 0), "40m"),
    Case("SlurmExtenderQueueStalled", _queue("a", 3), _queue("a", 3, "0+1x60"), "40m"),
    Case(  # each partition counts by itself: starts in b do not help a
        "SlurmExtenderQueueStalled",
        _queue("a", 3) | _queue("b", 0, "0+1x60"),
        _queue("a", 0) | _queue("b", 3, "0+1x60"),
        "40m",
    ),
    Case(  # an increase from 0, and an increase under the next leader
        "SlurmExtenderQueueStalled",
        {'slurm_extender_startable_pods{partition="a"}': "3x60"},
        _queue("a", 3, "0x33 1x27"),
        "40m",
    ),
    Case("SlurmExtenderSubmissionsStalled", _answers("4x60"), _answers("4x30 5x30"), "40m"),
    Case("SlurmExtenderBindingStalled", _granted(3), _granted(2)),
    Case(
        "SlurmExtenderBindingStalled",
        {'slurm_extender_waiting_pods{waits_for="binding"}': "3 0 0 0 " * 15},
        _granted(30, bound="0x12 1x48"),
    ),
    Case(
        "SlurmExtenderBindingStalled",  # the Pods disappear at once, because their author deletes them
        _granted(3),
        {'slurm_extender_waiting_pods{waits_for="binding"}': "0x11 3 0x48"},
    ),
    Case(
        "SlurmExtenderPodsWithoutJob",
        {"slurm_extender_pods_without_job": "1x60"},
        {"slurm_extender_pods_without_job": "0x16 1x3 0x60"},
    ),
    Case(
        "SlurmExtenderJobsWithoutPod",
        {f'{_FINDINGS}{{kind="OrphanJob"}}': "2x60"},
        {f'{_FINDINGS}{{kind="OrphanJob"}}': "0x60", f'{_FINDINGS}{{kind="StuckGate"}}': "2x60"},
    ),
    Case(
        "SlurmExtenderEvictionsThrottled",
        {"slurm_extender_evictions_throttled": "12x60"},
        {"slurm_extender_evictions_throttled": "12x5 0x55"},
    ),
    Case(
        "SlurmExtenderAuditDrift",
        {f'{_FINDINGS}{{kind="WrongNode"}}': "1x60"},
        {f'{_FINDINGS}{{kind="OtherCluster"}}': "5x60"},
    ),
    Case(
        "SlurmExtenderAuditStale",
        {"slurm_extender_audit_last_success_timestamp_seconds": "60x60"},
        {'slurm_extender_audit_last_success_timestamp_seconds{instance="a"}': "0x60"}
        | {'slurm_extender_audit_last_success_timestamp_seconds{instance="b"}': "0+60x60"},
        "50m",
    ),
    Case(
        "SlurmExtenderAuditStale",  # the leader has not audited since its start
        {
            "slurm_extender_leading": "1x60",
            "slurm_extender_audit_last_success_timestamp_seconds": "0x60",
        },
        {
            "slurm_extender_leading": "0x20 1x40",
            "slurm_extender_audit_last_success_timestamp_seconds": "0x60",
        },
        "45m",
    ),
    Case(
        "SlurmExtenderPrologGateFailing",
        {'slurm_extender_gate_answers_total{answer="failed"}': "0+1x60"},
        {'slurm_extender_gate_answers_total{answer="not-leading"}': "0+5x60"},
    ),
    Case(
        "SlurmExtenderPrologGateFailing",
        {'slurm_extender_drained_nodes{cause="prolog-refused"}': "1x60"},
        {'slurm_extender_drained_nodes{cause="cordoned"}': "1x60"},
    ),
    Case(
        "SlurmExtenderPrologGateFailing",
        {"slurm_extender_prolog_error_nodes": "1x60"},
        {"slurm_extender_prolog_error_nodes": "0x15 1x45"},
    ),
)
