"""Dashboard of degraded components, and of the activity of Slurm and Kubernetes."""

from typing import Final

from deploy.monitoring.panel import Query
from deploy.monitoring.queries import RATE, dashboard, now, panel, per_second, quantiles, row, summed


def _of_replicas(expr: str) -> Query:
    """Returns a query that selects only the extender's replicas, for a metric that other programs in
    Prometheus have as well."""
    replicas = "on (job, instance) slurm_extender_build_info"
    return Query(f"sum by (instance) ({expr} and {replicas})", "{{instance}}")


CLUSTER: Final = dashboard(
    "cluster",
    "Cluster",
    "Does everything work? Which components are degraded, and what do Slurm and Kubernetes do?",
    row(
        "Now",
        now("Leaders", "sum(slurm_extender_leading)"),
        now("Degraded components", "sum(slurm_extender_component_degraded)", red_from=1),
        now("Pods bound", 'sum(slurm_extender_placeholders{state="Bound"})'),
        now("Waiting Pods", "sum(slurm_extender_waiting_pods)"),
        now("Audit findings", 'sum(slurm_extender_audit_findings{kind!="OtherCluster"})', red_from=1),
        now("Delayed evictions", "sum(slurm_extender_evictions_throttled)", red_from=1),
        now(
            "Token expires in",
            "min(slurm_extender_token_expiration_timestamp_seconds - time())",
            unit="s",
        ),
        now(
            "Certificate expires in",
            "min(slurm_extender_certificate_expiration_timestamp_seconds - time())",
            unit="s",
        ),
        now("Versions", "count(count by (version) (slurm_extender_build_info))", red_from=2),
    ),
    row(
        "Health",
        panel(
            "Degraded components",
            Query("max by (component) (slurm_extender_component_degraded) > 0", "{{component}}"),
        ),
        panel(
            "Pods without a job, lost jobs",
            Query("sum(slurm_extender_pods_without_job)", "without a job"),
            Query(f"sum(increase(slurm_extender_jobs_lost_total[{RATE}]))", "lost"),
        ),
        panel("Audit findings", summed("slurm_extender_audit_findings", "kind")),
        panel(
            "Changes of the leader",
            Query("max(increase(slurm_extender_lease_transitions_total[30m]))", "in 30 min"),
        ),
        panel(
            "Evictions for Pods without a grant of Slurm",
            Query("max(increase(slurm_extender_unasked_preemptions_total[10m]))", "in 10 min"),
        ),
        panel("Evictions", per_second("slurm_extender_evictions_total", "reason"), unit="ops"),
        panel(
            "Rejections by listeners",
            per_second("slurm_extender_listener_rejections_total", "listener", "why"),
            unit="ops",
        ),
    ),
    row(
        "Calls",
        panel(
            "Requests to slurmrestd",
            per_second("slurm_extender_slurmrestd_calls_total", "call"),
            unit="ops",
        ),
        panel(
            "Bytes to and from slurmrestd",
            per_second("slurm_extender_slurmrestd_bytes_total", "call"),
            unit="Bps",
        ),
        panel(
            "Failed effects",
            Query(
                "sum by (effect) (rate(slurm_extender_effect_seconds_count"
                f'{{outcome!="done"}}[{RATE}]))',
                "{{effect}}",
            ),
            unit="ops",
        ),
        panel("Duration of effects", *quantiles("slurm_extender_effect_seconds", "effect"), unit="s"),
        panel("CPU of the extender", _of_replicas(f"rate(process_cpu_seconds_total[{RATE}])")),
        panel("Memory of the extender", _of_replicas("process_resident_memory_bytes"), unit="bytes"),
    ),
    row(
        "Slurm's own",
        panel(
            "Jobs",
            Query("max(slurm_jobs_running)", "running"),
            Query("max(slurm_jobs_pending)", "pending"),
            Query("max(slurm_jobs_completing)", "completing"),
        ),
        panel(
            "Nodes",
            Query("max(slurm_nodes_idle)", "idle"),
            Query("max(slurm_nodes_mixed)", "mixed"),
            Query("max(slurm_nodes_alloc)", "allocated"),
            Query("max(slurm_nodes_drain)", "drain"),
            Query("max(slurm_nodes_down)", "down"),
        ),
        panel("Length of backfill's queue", Query("max(slurm_bf_queue_len)", "jobs")),
    ),
)
