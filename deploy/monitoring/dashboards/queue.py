"""The dashboard that shows what Pods wait for, for how long, and whether the queue moves."""

from typing import Final

from deploy.monitoring.panel import Query
from deploy.monitoring.queries import dashboard, panel, per_second, quantiles, row, summed

QUEUE: Final = dashboard(
    "queue",
    "Queue",
    "What do Pods wait for, for how long, and does the queue move?",
    row(
        "What waits",
        panel("Pods that wait", summed("slurm_extender_waiting_pods", "waits_for"), stacked=True),
        panel(
            "The oldest one has waited for",
            Query(
                "time() - min by (waits_for) (slurm_extender_waiting_oldest_creation_timestamp_seconds)",
                "{{waits_for}}",
            ),
            unit="s",
        ),
        panel(
            "Could start on idle nodes",
            summed("slurm_extender_startable_pods", "partition"),
            words="Pods in Slurm's queue that fit on nodes of their partition that are idle.",
        ),
        panel("Kept back in Kubernetes", summed("slurm_extender_kept_back", "reason")),
    ),
    row(
        "How it moves",
        panel(
            "Into each state",
            per_second("slurm_extender_placeholder_transitions_total", "state"),
            unit="ops",
        ),
        panel("Bound", per_second("slurm_extender_bound_pods_total", "partition"), unit="ops"),
        panel("From first seen to bound", *quantiles("slurm_extender_placement_seconds"), unit="s"),
        panel(
            "The same without waits", *quantiles("slurm_extender_placement_handling_seconds"), unit="s"
        ),
        panel("Placeholders", summed("slurm_extender_placeholders", "state"), stacked=True),
    ),
    row(
        "Slurm's own",
        panel(
            "Pending jobs", Query("max by (partition) (slurm_partition_jobs_pending)", "{{partition}}")
        ),
        panel(
            "Running jobs", Query("max by (partition) (slurm_partition_jobs_running)", "{{partition}}")
        ),
        panel("Held jobs", Query("max by (partition) (slurm_partition_jobs_hold)", "{{partition}}")),
    ),
)
