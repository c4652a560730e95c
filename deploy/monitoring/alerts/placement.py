"""Alerts about Pods and jobs: whether they are placed, evicted, and agree."""

from typing import Final

from deploy.monitoring.releases import by
from deploy.monitoring.replicas import LEADING
from deploy.monitoring.rule import Alert, Group, Severity, labelled

_FINDINGS: Final = "slurm_extender_audit_findings"
_AUDITED: Final = "slurm_extender_audit_last_success_timestamp_seconds"
_LED: Final = f"max {by()} ({LEADING} == 1 and {LEADING} offset 31m == 1)"
"""Whether one replica has led for so long: its first audit is not what is waited for."""
_TRANSITIONS: Final = "slurm_extender_placeholder_transitions_total"
_BOUND: Final = f'increase({_TRANSITIONS}{{state="Bound"}}[15m])'
_TAKEN: Final = f'increase({_TRANSITIONS}{{state=~"Queued|Allocated"}}[15m])'
_BINDING: Final = 'slurm_extender_waiting_pods{waits_for="binding"}'
_SEVERAL: Final = 2
"""One or two Pods may have a Node or a volume that is wrong: the component `Pods that cannot be bound`
tells of them."""
_LASTS: Final = f"count_over_time((sum {by()} ({_BINDING}) > {_SEVERAL})[15m:30s]) >= 5"
"""Not a glimpse of Pods that were bound or deleted by the next look; an allocation is given back after
30 s, and asked for again."""
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
            "{{ $value }} Pods wait in partition {{ $labels.partition }}, which has idle nodes for them",
            "No Pod of this partition was bound in half an hour, though whole nodes of it are idle and"
            " open, and have the CPUs, memory and GRES that these Pods ask for: Slurm does not start"
            " their jobs.",
        ),
        Alert(
            "SlurmExtenderSubmissionsStalled",
            f'sum {by()} (slurm_extender_waiting_pods{{waits_for="answer"}}) > 0'
            f" unless sum {by()} ({_TAKEN}) > 0",
            "15m",
            Severity.WARNING,
            "{{ $value }} Pods wait for Slurm to take their jobs, and it takes none",
            "Slurm has taken no job of a Pod in half an hour: it rejects them for now (a limit,"
            " MaxJobCount), is slow, or is down. The condition of each such Pod says which.",
        ),
        Alert(
            "SlurmExtenderBindingStalled",
            f"sum {by()} (max_over_time({_BINDING}[10m])) > {_SEVERAL} and {_LASTS} unless {_MOVES}",
            "5m",
            Severity.CRITICAL,
            "{{ $value }} Pods have a node from Slurm, and kube-scheduler binds none",
            "Their jobs run and hold nodes for nothing. kube-scheduler is down, or the one that leads"
            " asks a replica that cannot bind: that need not be the leader.",
        ),
        Alert(
            "SlurmExtenderPodsWithoutJob",
            f"sum {by()} (slurm_extender_pods_without_job) > 0",
            "5m",
            Severity.WARNING,
            "{{ $value }} Pods run without a job in Slurm, which may give their nodes to others",
            "Slurm has lost their jobs and does not start the next ones.",
        ),
        Alert(
            "SlurmExtenderJobsWithoutPod",
            f'sum {by("kind")} ({_FINDINGS}{{kind=~"OrphanJob|TwoJobs"}}) > 0',
            "10m",
            Severity.WARNING,
            "{{ $value }} placeholders hold resources for no Pod ({{ $labels.kind }})",
            "The leader ends such jobs by itself, at the eviction limiter's pace. These it does not"
            " end.",
        ),
        Alert(
            "SlurmExtenderEvictionsThrottled",
            f"sum {by()} (slurm_extender_evictions_throttled) > 0",
            "1m",
            Severity.CRITICAL,
            "So many jobs of Pods ended at once that {{ $value }} Pods' deletions are held back",
            "It may be a mistake: a partition that was wiped, a Slurm with another state. The eviction"
            " limiter lets deletions go on at its pace, unless somebody stops them: the runbook has the"
            " command.",
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
            "The leader has not compared both systems for {{ $value | humanizeDuration }}",
            "Differences are not seen, and orphan jobs not ended.",
        ),
        Alert(
            "SlurmExtenderPrologGateFailing",
            labelled(f"sum {by()} ({_FAILED_GATES}) > 0", "why", "gates that got no answer")
            + " or "
            + labelled(f"sum {by()} ({_REFUSED}) > 0", "why", "nodes that a gate has drained")
            + " or "
            + labelled(f"sum {by()} ({_PROLOG_ERRORS}) > 0", "why", "nodes that Slurm has drained"),
            "10m",
            Severity.WARNING,
            "Native jobs fail in their Prolog: {{ $value | humanize }} {{ $labels.why }}",
            "The Prolog's gate asks whether Pods are still on a node. Batch jobs are requeued, srun and"
            " salloc end, and a node that is drained takes no jobs.",
        ),
    ),
)
