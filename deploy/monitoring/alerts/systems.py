"""Alerts about Slurm, kube-apiserver and kube-scheduler, as the extender finds them."""

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
            "`Slurm`: it does not reach slurmctld through slurmrestd. `Slurm's token`: Slurm rejects the"
            " token. What runs goes on, new Pods wait until it is over, and no end of a job is seen.",
        ),
        Alert(
            "SlurmExtenderKubernetesUnreachable",
            of_leader_or_all(degraded("Kubernetes"), "component"),
            "5m",
            Severity.CRITICAL,
            "The extender does not reach kube-apiserver: it places and evicts no Pod",
            "What runs goes on. The leader holds everything back until it can renew its Lease; webhooks"
            " are answered meanwhile.",
        ),
        Alert(
            "SlurmExtenderSlurmStateLost",
            labelled(
                f"({_LOST} > 2 and {_LOST} >= 0.5 * {_BOUND})", "why", "it does not know jobs of Pods"
            )
            + " or "
            + labelled(f"({_ANEW} and {_RESTARTED})", "why", "its job ids begin anew"),
            "0m",
            Severity.CRITICAL,
            "slurmctld seems to have lost its state: {{ $labels.why }}",
            "Half of the jobs of Pods that run are unknown to it, or its next id is less than half of"
            " what it was within the hour. The extender asks for these jobs anew, and deletes nothing;"
            " native jobs are lost.",
        ),
        Alert(
            "SlurmExtenderPreemptionUnsafe",
            labelled(f"max {by()} ({_EVICTED}) > 0", "what", "evicts")
            + " or "
            + labelled(f"max {by()} ({_UNSAFE})", "what", "may evict"),
            "0m",
            Severity.CRITICAL,
            "kube-scheduler {{ $labels.what }} Pods for Pods that Slurm has not granted",
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
            "SlurmExtenderMemoryNotCounted",
            of_leader_or_all(degraded("SelectTypeParameters"), "component"),
            "5m",
            Severity.CRITICAL,
            "Slurm does not count memory: a Pod and a native job may get the same memory of a node",
            "SelectTypeParameters of slurm.conf, or of a partition, lacks memory. Set CR_Core_Memory. A"
            " node agent still limits each Pod to the memory that the Pod requests.",
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
