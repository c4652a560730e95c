"""The dashboard that shows whether Pods and jobs are kept apart, and which nodes are out of service."""

from typing import Final

from deploy.monitoring.panel import Query
from deploy.monitoring.queries import RATE, dashboard, panel, per_second, row, summed

NODE: Final = dashboard(
    "node",
    "Nodes",
    "Are Pods and jobs kept apart on each Node, and which nodes are out of service, and why?",
    row(
        "Node agents",
        panel("Ready", Query("node_agent_ready", "{{node}} {{instance}}")),
        panel(
            "Last look",
            Query("time() - node_agent_last_look_timestamp_seconds", "{{node}} {{instance}}"),
            unit="s",
        ),
        panel("In trouble", Query("node_agent_component_degraded > 0", "{{node}} {{component}}")),
        panel(
            "Pods with less than their jobs",
            Query("node_agent_pods_with_less_than_their_jobs > 0", "{{node}} {{instance}}"),
        ),
        panel(
            "Limits that others had changed",
            Query(f"rate(node_agent_limits_repaired_total[{RATE}])", "{{node}} {{instance}}"),
            unit="ops",
        ),
        panel(
            "Devices",
            Query("sum by (gres, type) (node_agent_devices)", "{{gres}} {{type}}"),
            Query("sum by (gres, type) (node_agent_devices_failed)", "{{gres}} {{type}} failed"),
            Query("sum(node_agent_gres_mismatches)", "counted differently"),
        ),
    ),
    row(
        "Out of service",
        panel("Drained by the extender", summed("slurm_extender_drained_nodes", "cause")),
        panel(
            "The oldest of these drains",
            Query(
                "time() - min by (cause) (slurm_extender_drained_oldest_timestamp_seconds)", "{{cause}}"
            ),
            unit="s",
        ),
        panel("Drains suppressed", Query("sum(slurm_extender_drains_suppressed)", "nodes")),
        panel(
            "What gates were told", per_second("slurm_extender_gate_answers_total", "answer"), unit="ops"
        ),
        panel("Prolog errors", Query("sum(slurm_extender_prolog_error_nodes)", "nodes")),
    ),
    row(
        "Pools",
        panel(
            "Nodes of pools",
            Query("sum by (pool, nodes) (slurm_extender_pool_nodes)", "{{pool}} {{nodes}}"),
        ),
        panel(
            "Roll-outs that have stopped",
            Query("max by (pool) (slurm_extender_pool_stopped)", "{{pool}}"),
        ),
    ),
)
