"""The dashboard that shows what Pods wait for, for how long, and whether the queue moves."""

from typing import Final

from deploy.monitoring.panel import Dashboard, Panel, Query, Row
from deploy.monitoring.queries import per_second, quantiles, summed

QUEUE: Final = Dashboard(
    "queue",
    "Queue",
    "What do Pods wait for, for how long, and does the queue move?",
    (
        Row(
            "What waits",
            (
                Panel(
                    "Pods that wait", (summed("slurm_extender_waiting_pods", "waits_for"),), stacked=True
                ),
                Panel(
                    "The oldest one has waited for",
                    (
                        Query(
                            "time() - min by (waits_for) "
                            "(slurm_extender_waiting_oldest_creation_timestamp_seconds)",
                            "{{waits_for}}",
                        ),
                    ),
                    "s",
                ),
                Panel(
                    "Could start on idle nodes",
                    (summed("slurm_extender_startable_pods", "partition"),),
                    words="Pods in Slurm's queue that fit on nodes of their partition that are idle.",
                ),
                Panel("Kept back in Kubernetes", (summed("slurm_extender_kept_back", "reason"),)),
            ),
        ),
        Row(
            "How it moves",
            (
                Panel(
                    "Into each state",
                    (per_second("slurm_extender_placeholder_transitions_total", "state"),),
                    "ops",
                ),
                Panel("Bound", (per_second("slurm_extender_bound_pods_total", "partition"),), "ops"),
                Panel("From first seen to bound", quantiles("slurm_extender_placement_seconds"), "s"),
                Panel(
                    "The same without waits", quantiles("slurm_extender_placement_handling_seconds"), "s"
                ),
                Panel("Placeholders", (summed("slurm_extender_placeholders", "state"),), stacked=True),
            ),
        ),
        Row(
            "Slurm's own",
            (
                Panel(
                    "Pending jobs",
                    (Query("max by (partition) (slurm_partition_jobs_pending)", "{{partition}}"),),
                ),
                Panel(
                    "Running jobs",
                    (Query("max by (partition) (slurm_partition_jobs_running)", "{{partition}}"),),
                ),
                Panel(
                    "Held jobs",
                    (Query("max by (partition) (slurm_partition_jobs_hold)", "{{partition}}"),),
                ),
            ),
        ),
    ),
)
