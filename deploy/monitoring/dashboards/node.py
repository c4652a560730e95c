"""Dashboard of the limits of Pods and jobs, and of nodes out of service."""

from typing import Final

from deploy.monitoring.panel import Query
from deploy.monitoring.queries import RATE, dashboard, panel, per_second, row, summed

NODE: Final = dashboard(
    "node",
    "Nodes",
    "Are Pods and jobs kept apart on each Node? Which nodes are out of service, and why?",
    row(
        "Node agents",
        panel("Ready", Query("node_agent_ready", "{{node}} {{instance}}")),
        panel(
            "Time since the last check",
            Query("time() - node_agent_last_look_timestamp_seconds", "{{node}} {{instance}}"),
            unit="s",
        ),
        panel(
            "Degraded components",
            Query("node_agent_component_degraded > 0", "{{node}} {{component}}"),
        ),
        panel(
            "Pods with less than their jobs",
            Query("node_agent_pods_with_less_than_their_jobs > 0", "{{node}} {{instance}}"),
        ),
        panel(
            "Limits repaired after a change by another program",
            Query(f"rate(node_agent_limits_repaired_total[{RATE}])", "{{node}} {{instance}}"),
            unit="ops",
        ),
        panel(
            "Devices",
            Query("sum by (gres, type) (node_agent_devices)", "{{gres}} {{type}}"),
            Query("sum by (gres, type) (node_agent_devices_failed)", "{{gres}} {{type}} failed"),
            Query("sum(node_agent_gres_mismatches)", "with different counts"),
        ),
    ),
    row(
        "Out of service",
        panel("Drained by the extender", summed("slurm_extender_drained_nodes", "cause")),
        panel(
            "Age of the oldest drain",
            Query(
                "time() - min by (cause) (slurm_extender_drained_oldest_timestamp_seconds)", "{{cause}}"
            ),
            unit="s",
        ),
        panel("Suppressed drains", Query("sum(slurm_extender_drains_suppressed)", "nodes")),
        panel("Answers to gates", per_second("slurm_extender_gate_answers_total", "answer"), unit="ops"),
        panel("Prolog errors", Query("sum(slurm_extender_prolog_error_nodes)", "nodes")),
    ),
    row(
        "Pools",
        panel(
            "Nodes of pools",
            Query("sum by (pool, nodes) (slurm_extender_pool_nodes)", "{{pool}} {{nodes}}"),
        ),
        panel(
            "Stopped roll-outs",
            Query("max by (pool) (slurm_extender_pool_stopped)", "{{pool}}"),
        ),
    ),
)
