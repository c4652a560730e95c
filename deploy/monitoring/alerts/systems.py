"""Alerts about Slurm, kube-apiserver and kube-scheduler, as the extender finds them."""

from typing import Final

from deploy.monitoring.releases import by
from deploy.monitoring.replicas import LEADING, degraded, of_leader_or_all
from deploy.monitoring.rule import Alert, Group, Severity

_NEXT: Final = "slurm_extender_next_job_id"
_LOST: Final = f"sum {by()} (increase(slurm_extender_jobs_lost_total[15m]))"
_BOUND: Final = f'sum {by()} (slurm_extender_placeholders{{state="Bound"}})'
_RESTARTED: Final = f"max {by()} (changes(slurm_extender_slurmctld_start_timestamp_seconds[1h])) > 0"

SYSTEMS: Final = Group(
    "slurm-extender-systems",
    (
        Alert(
            "SlurmExtenderSlurmUnreachable",
            of_leader_or_all(degraded("Slurm|Slurm's token"), "component"),
            "2m",
            Severity.CRITICAL,
            "{{ $labels.component }} is in trouble: no Pod gets a job",
            "The extender does not reach slurmctld through slurmrestd, or its token is rejected. What"
            " runs goes on; Pods wait until it is over.",
        ),
        Alert(
            "SlurmExtenderKubernetesUnreachable",
            of_leader_or_all(degraded("Kubernetes"), "component"),
            "5m",
            Severity.CRITICAL,
            "The extender does not reach kube-apiserver: nothing is placed",
            "What runs goes on. The leader holds everything back until it can renew its Lease.",
        ),
        Alert(
            "SlurmExtenderSlurmStateLost",
            f"({_LOST} > 2 and {_LOST} >= 0.5 * {_BOUND})"
            f" or (max {by()} ({_NEXT} and {LEADING} == 1)"
            f" < 0.5 * max {by()} (max_over_time({_NEXT}[1h])) and {_RESTARTED})",
            "0m",
            Severity.CRITICAL,
            "slurmctld seems to have lost its state",
            "Slurm does not know the jobs of Pods that run, or gives job ids from the beginning again."
            " The extender asks for these jobs anew, and deletes nothing; native jobs are lost.",
        ),
        Alert(
            "SlurmExtenderPreemptionUnsafe",
            f"max {by()} ({of_leader_or_all(degraded('preemption'), 'component')})"
            f" or max {by()} (increase(slurm_extender_unasked_preemptions_total[10m])) > 0",
            "0m",
            Severity.CRITICAL,
            "kube-scheduler evicts, or would evict, Pods for Pods that Slurm has not granted",
            "kube-scheduler's profile for Slurm's Pods has preemption on, and its extender no"
            " preemptVerb: one rejected Pod can evict every other one.",
        ),
        Alert(
            "SlurmExtenderJobIdsNearRange",
            of_leader_or_all(degraded("job ids"), "component"),
            "5m",
            Severity.WARNING,
            "Slurm's own job ids come near the placeholders' range, or are in it",
            "Native jobs would get ids that the extender computes for placeholders, whose submissions"
            " Slurm then rejects. Set MaxJobId in slurm.conf.",
        ),
        Alert(
            "SlurmExtenderAdminCommentRewritten",
            of_leader_or_all(degraded("AdminComment"), "component"),
            "5m",
            Severity.WARNING,
            "Something overwrites the AdminComment of placeholders",
            "The extender knows its jobs by it. Jobs that have lost it stay their Pods', and new ones"
            " may be rejected.",
        ),
    ),
)
