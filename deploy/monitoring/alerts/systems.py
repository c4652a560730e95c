"""Alerts about Slurm, kube-apiserver and kube-scheduler, from the extender's point of view."""

from typing import Final

from deploy.monitoring.releases import by
from deploy.monitoring.replicas import LEADING, degraded, of_leader_or_all
from deploy.monitoring.rule import Alert, Group, Severity, labelled

_UNSAFE: Final = of_leader_or_all(degraded("preemption"), "component")
_EVICTED: Final = "increase(slurm_extender_unasked_preemptions_total[10m])"
_NEXT: Final = "slurm_extender_next_job_id"
_ANEW: Final = f"max {by()} ({_NEXT} and {LEADING} == 1) < 0.5 * max {by()} (max_over_time({_NEXT}[1h]))"
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
            "The extender's calls to Slurm fail ({{ $labels.component }}): no Pod gets a job",
            "`Slurm`: the extender does not reach slurmctld through slurmrestd. `Slurm's token`:"
            " Slurm rejects the token. Running Pods and jobs go on. Until Slurm accepts calls again,"
            " new Pods wait, and the extender sees no end of a job.",
        ),
        Alert(
            "SlurmExtenderKubernetesUnreachable",
            of_leader_or_all(degraded("Kubernetes"), "component"),
            "5m",
            Severity.CRITICAL,
            "The extender does not reach kube-apiserver, and places and evicts no Pod",
            "Running Pods and jobs go on. The leader changes nothing until it can renew its Lease. The"
            " extender still answers webhooks.",
        ),
        Alert(
            "SlurmExtenderSlurmStateLost",
            labelled(f"({_LOST} > 2 and {_LOST} >= 0.5 * {_BOUND})", "why", "jobs of Pods are unknown")
            + " or "
            + labelled(f"({_ANEW} and {_RESTARTED})", "why", "job ids start again"),
            "0m",
            Severity.CRITICAL,
            "slurmctld seems to have lost its state: {{ $labels.why }}",
            "slurmctld does not know the jobs of half of the running Pods, or the next job id is less"
            " than half of an id within the last hour. The extender requests these jobs again, and"
            " deletes nothing. Native jobs are lost.",
        ),
        Alert(
            "SlurmExtenderPreemptionUnsafe",
            labelled(f"max {by()} ({_EVICTED}) > 0", "what", "evicts")
            + " or "
            + labelled(f"max {by()} ({_UNSAFE})", "what", "may evict"),
            "0m",
            Severity.CRITICAL,
            "kube-scheduler {{ $labels.what }} Pods for Pods without a grant of Slurm",
            "kube-scheduler's profile for Slurm's Pods has preemption on, and the extender has no"
            " preemptVerb. A single rejected Pod can evict all other Pods.",
        ),
        Alert(
            "SlurmExtenderJobIdsNearRange",
            of_leader_or_all(degraded("job ids"), "component"),
            "5m",
            Severity.WARNING,
            "The ids of native jobs are near the placeholders' range, or in the range",
            "If a native job gets an id that the extender computes for a placeholder, Slurm rejects"
            " the placeholder. Set MaxJobId in slurm.conf.",
        ),
        Alert(
            "SlurmExtenderMemoryNotCounted",
            of_leader_or_all(degraded("SelectTypeParameters"), "component"),
            "5m",
            Severity.CRITICAL,
            "Slurm does not count memory: a Pod and a native job may get the same memory of a node",
            "SelectTypeParameters of slurm.conf, or of a partition, lacks memory. Set CR_Core_Memory."
            " A node agent still limits each Pod to the memory that the Pod requests.",
        ),
        Alert(
            "SlurmExtenderAdminCommentRewritten",
            of_leader_or_all(degraded("AdminComment"), "component"),
            "5m",
            Severity.WARNING,
            "Another program overwrites the AdminComment of placeholders",
            "The extender identifies its jobs by the AdminComment. Known jobs stay the jobs of their"
            " Pods. The extender may reject new jobs.",
        ),
    ),
)
