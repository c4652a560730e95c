"""Alerts about Pods and jobs: placement, eviction, and differences."""

from typing import Final

from deploy.monitoring.releases import by
from deploy.monitoring.replicas import LEADING
from deploy.monitoring.rule import Alert, Group, Severity, labelled

_FINDINGS: Final = "slurm_extender_audit_findings"
_AUDITED: Final = "slurm_extender_audit_last_success_timestamp_seconds"
_LED: Final = f"max {by()} ({LEADING} == 1 and {LEADING} offset 31m == 1)"
"""1 if a replica leads now and led 31 minutes ago. A newer leader may not yet have made its first
audit."""
_TRANSITIONS: Final = "slurm_extender_placeholder_transitions_total"
_BOUND: Final = f'increase({_TRANSITIONS}{{state="Bound"}}[15m])'
_TAKEN: Final = f'increase({_TRANSITIONS}{{state=~"Queued|Allocated"}}[15m])'
_BINDING: Final = 'slurm_extender_waiting_pods{waits_for="binding"}'
_SEVERAL: Final = 2
"""Largest number of Pods for which no alert fires, because one or two Pods may have a wrong Node or
volume. The component `Pods that cannot be bound` reports such Pods."""
_LASTS: Final = f"count_over_time((sum {by()} ({_BINDING}) > {_SEVERAL})[15m:30s]) >= 5"
"""Holds if more than _SEVERAL Pods waited for their binding at five or more of the 30 checks in the last
15 minutes. Excludes Pods that are bound or deleted before the next scrape. An unbound Pod does not wait
at every check, because the extender gives the Pod's allocation back after 30 s and requests another
job."""
_MOVES: Final = f"sum {by()} ({_BOUND}) > 0"
_REFUSED: Final = 'slurm_extender_drained_nodes{cause="prolog-refused"}'
_PROLOG_ERRORS: Final = "slurm_extender_prolog_error_nodes"
_FAILED_GATES: Final = 'increase(slurm_extender_gate_answers_total{answer="failed"}[10m])'

PLACEMENT: Final = Group(
    "slurm-extender-placement",
    (
        Alert(
            "SlurmExtenderQueueStalled",
            f"sum {by('partition')} (slurm_extender_startable_pods) > 0"
            f" unless sum {by('partition')} (increase(slurm_extender_bound_pods_total[15m])) > 0",
            "15m",
            Severity.CRITICAL,
            "{{ $value }} Pods wait in partition {{ $labels.partition }}, and idle nodes have room"
            " for them",
            "No Pod of this partition was bound for half an hour. But whole nodes of the partition"
            " are idle and open, and have the CPUs, memory and GRES for these Pods. Slurm does not"
            " start their jobs.",
        ),
        Alert(
            "SlurmExtenderSubmissionsStalled",
            f'sum {by()} (slurm_extender_waiting_pods{{waits_for="answer"}}) > 0'
            f" unless sum {by()} ({_TAKEN}) > 0",
            "15m",
            Severity.WARNING,
            "{{ $value }} Pods wait for Slurm to accept their jobs, and Slurm accepts no job",
            "Slurm has accepted no job of a Pod for half an hour. Slurm rejects the jobs for now (a"
            " limit, MaxJobCount), is slow, or is down. The condition of each of these Pods has the"
            " reason.",
        ),
        Alert(
            "SlurmExtenderBindingStalled",
            f"sum {by()} (max_over_time({_BINDING}[10m])) > {_SEVERAL} and {_LASTS} unless {_MOVES}",
            "5m",
            Severity.CRITICAL,
            "{{ $value }} Pods have a node from Slurm, and kube-scheduler binds no Pod",
            "The jobs of these Pods run, and hold nodes without use. kube-scheduler is down, or the"
            " leading kube-scheduler calls a replica that cannot bind. This replica may be a standby.",
        ),
        Alert(
            "SlurmExtenderPodsWithoutJob",
            f"sum {by()} (slurm_extender_pods_without_job) > 0",
            "5m",
            Severity.WARNING,
            "{{ $value }} Pods run without a job, and Slurm may give their nodes to other jobs",
            "Slurm has lost the jobs of these Pods, and does not start the next jobs.",
        ),
        Alert(
            "SlurmExtenderJobsWithoutPod",
            f'sum {by("kind")} ({_FINDINGS}{{kind=~"OrphanJob|TwoJobs"}}) > 0',
            "10m",
            Severity.WARNING,
            "{{ $value }} placeholders hold resources for no Pod ({{ $labels.kind }})",
            "The leader normally cancels such jobs by itself, at the eviction limiter's pace. The"
            " leader has not cancelled these jobs.",
        ),
        Alert(
            "SlurmExtenderEvictionsThrottled",
            f"sum {by()} (slurm_extender_evictions_throttled) > 0",
            "1m",
            Severity.CRITICAL,
            "Too many jobs of Pods ended at once: the extender delays the deletion of {{ $value }} Pods",
            "The cause may be a mistake: a wiped partition, or a Slurm with another state. The"
            " deletions go on at the eviction limiter's pace. The runbook has the command that stops"
            " the deletions.",
        ),
        Alert(
            "SlurmExtenderAuditDrift",
            f'sum {by("kind")} ({_FINDINGS}{{kind!~"OrphanJob|TwoJobs|OtherCluster"}}) > 0',
            "10m",
            Severity.WARNING,
            "Slurm and Kubernetes differ: {{ $value }} times {{ $labels.kind }}",
            "slurm-extender audit lists each difference with its cause and its fix.",
        ),
        Alert(
            "SlurmExtenderAuditStale",
            f"min {by()} (time() - ({_AUDITED} > 0)) > 1800"
            f" or 1800 * {_LED} and max {by()} ({_AUDITED}) == 0",
            "5m",
            Severity.WARNING,
            "The leader has not compared Slurm and Kubernetes for {{ $value | humanizeDuration }}",
            "The leader reports no new differences, and cancels no orphan jobs.",
        ),
        Alert(
            "SlurmExtenderPrologGateFailing",
            labelled(f"sum {by()} ({_FAILED_GATES}) > 0", "why", "gates without an answer")
            + " or "
            + labelled(f"sum {by()} ({_REFUSED}) > 0", "why", "nodes drained by a gate")
            + " or "
            + labelled(f"sum {by()} ({_PROLOG_ERRORS}) > 0", "why", "nodes drained by Slurm"),
            "10m",
            Severity.WARNING,
            "Native jobs fail in their Prolog: {{ $value | humanize }} {{ $labels.why }}",
            "The Prolog's gate asks whether Pods are still on a node. Slurm requeues batch jobs, and"
            " srun and salloc end. A drained node takes no jobs.",
        ),
    ),
)
