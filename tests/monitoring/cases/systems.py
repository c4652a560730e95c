"""Alerts about Slurm, kube-apiserver and kube-scheduler."""

from __future__ import annotations

from tests.monitoring.cases.case import Case, Series, degraded


def _flaps(component: str) -> Series:
    return degraded(component, "1 0 " * 15)


def _lost(jobs: int, bound: int) -> Series:
    return {
        "slurm_extender_jobs_lost_total": f"0x10 {jobs}x50",
        'slurm_extender_placeholders{state="Bound"}': f"{bound}x60",
    }


def _begins_anew(next_job_id: int) -> Series:
    return {
        "slurm_extender_next_job_id": f"5000x10 {next_job_id}x50",
        "slurm_extender_slurmctld_start_timestamp_seconds": "100x10 660x50",
    }


CASES = (
    Case("SlurmExtenderSlurmUnreachable", degraded("Slurm", "1x60"), _flaps("Slurm")),
    Case("SlurmExtenderSlurmUnreachable", degraded("Slurm's token", "1x60"), degraded("jobs", "1x60")),
    Case("SlurmExtenderKubernetesUnreachable", degraded("Kubernetes", "1x60"), _flaps("Kubernetes")),
    Case("SlurmExtenderSlurmStateLost", _lost(4, bound=4), _lost(4, bound=100), "15m"),
    Case("SlurmExtenderSlurmStateLost", _begins_anew(1), _begins_anew(4990), "15m"),
    Case(
        "SlurmExtenderPreemptionUnsafe", degraded("preemption", "1x60"), degraded("preemption", "0x60")
    ),
    Case("SlurmExtenderJobIdsNearRange", degraded("job ids", "1x60"), _flaps("job ids")),
    Case("SlurmExtenderAdminCommentRewritten", degraded("AdminComment", "1x60"), _flaps("AdminComment")),
    Case(
        "SlurmExtenderPreemptionUnsafe",
        {"slurm_extender_unasked_preemptions_total": "0x17 1x43"},
        {"slurm_extender_unasked_preemptions_total": "1x60"},
    ),
)
