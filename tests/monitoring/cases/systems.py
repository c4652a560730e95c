"""Cases for the alerts about Slurm, kube-apiserver and kube-scheduler."""

from __future__ import annotations

from tests.monitoring.cases.case import Case, Series, replicas

_MEMORY = "SelectTypeParameters"


def _flaps(component: str) -> Series:
    return replicas(component, "1 0 " * 15)


def _lost(jobs: int, bound: int) -> Series:
    return {
        "slurm_extender_jobs_lost_total": f"0x10 {jobs}x50",
        'slurm_extender_placeholders{state="Bound"}': f"{bound}x60",
    }


def _begins_anew(next_job_id: int) -> Series:
    """Returns the series of a leader that, after a restart of slurmctld, reads `next_job_id` as Slurm's
    next job id. The standby cannot read from Slurm any more."""
    return {
        'slurm_extender_leading{instance="a"}': "1x60",
        'slurm_extender_leading{instance="b"}': "0x60",
        'slurm_extender_next_job_id{instance="a"}': f"5000x10 {next_job_id}x50",
        'slurm_extender_next_job_id{instance="b"}': "5000x60",
        'slurm_extender_slurmctld_start_timestamp_seconds{instance="a"}': "100x10 660x50",
        'slurm_extender_slurmctld_start_timestamp_seconds{instance="b"}': "100x60",
    }


def _everybody(component: str) -> Series:
    return replicas(component, "1x60", "1x60", leads=0)


def _alone(component: str) -> Series:
    """Returns the series of a standby that alone has a problem, for example because its Node is
    broken."""
    return replicas(component, standby="1x60")


CASES = (
    Case("SlurmExtenderSlurmUnreachable", replicas("Slurm", "1x60"), _flaps("Slurm")),
    Case("SlurmExtenderSlurmUnreachable", replicas("Slurm's token", "1x60"), replicas("jobs", "1x60")),
    Case("SlurmExtenderSlurmUnreachable", _everybody("Slurm"), _alone("Slurm")),
    Case("SlurmExtenderSlurmUnreachable", replicas("Slurm", "1x60", "0x60"), _alone("Slurm's token")),
    Case("SlurmExtenderKubernetesUnreachable", _everybody("Kubernetes"), _flaps("Kubernetes")),
    Case("SlurmExtenderKubernetesUnreachable", replicas("Kubernetes", "1x60"), _alone("Kubernetes")),
    Case("SlurmExtenderSlurmStateLost", _lost(4, bound=4), _lost(4, bound=100), "15m"),
    Case("SlurmExtenderSlurmStateLost", _begins_anew(1), _begins_anew(4990), "15m"),
    Case(
        "SlurmExtenderPreemptionUnsafe", replicas("preemption", "1x60"), replicas("preemption", "0x60")
    ),
    Case("SlurmExtenderPreemptionUnsafe", _everybody("preemption"), _alone("preemption")),
    Case("SlurmExtenderJobIdsNearRange", replicas("job ids", "1x60"), _flaps("job ids")),
    Case("SlurmExtenderJobIdsNearRange", _everybody("job ids"), _alone("job ids")),
    Case("SlurmExtenderMemoryNotCounted", replicas(_MEMORY, "1x60"), _flaps(_MEMORY)),
    Case("SlurmExtenderMemoryNotCounted", _everybody(_MEMORY), _alone(_MEMORY)),
    Case("SlurmExtenderAdminCommentRewritten", replicas("AdminComment", "1x60"), _flaps("AdminComment")),
    Case(
        "SlurmExtenderPreemptionUnsafe",
        {"slurm_extender_unasked_preemptions_total": "0x17 1x43"},
        {"slurm_extender_unasked_preemptions_total": "1x60"},
    ),
)
