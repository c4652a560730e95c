"""Dashboard of waiting Pods: causes, waiting times, and progress of the queue."""

from typing import Final

from deploy.monitoring.panel import Query
from deploy.monitoring.queries import dashboard, panel, per_second, quantiles, row, summed

QUEUE: Final = dashboard(
    "queue",
    "Queue",
    "Why do Pods wait, and for how long? Does the queue move?",
    row(
        "Waiting Pods",
        panel("Waiting Pods by cause", summed("slurm_extender_waiting_pods", "waits_for"), stacked=True),
        panel(
            "Waiting time of the oldest Pod",
            Query(
                "time() - min by (waits_for) (slurm_extender_waiting_oldest_creation_timestamp_seconds)",
                "{{waits_for}}",
            ),
            unit="s",
        ),
        panel(
            "Pods that could start on idle nodes",
            summed("slurm_extender_startable_pods", "partition"),
            words="Pods in Slurm's queue that fit on idle nodes of their partition.",
        ),
        panel("Pods that wait for Kubernetes", summed("slurm_extender_kept_back", "reason")),
    ),
    row(
        "Progress",
        panel(
            "Transitions by state",
            per_second("slurm_extender_placeholder_transitions_total", "state"),
            unit="ops",
        ),
        panel("Bound Pods", per_second("slurm_extender_bound_pods_total", "partition"), unit="ops"),
        panel("Time until bound", *quantiles("slurm_extender_placement_seconds"), unit="s"),
        panel(
            "Time until bound without waiting",
            *quantiles("slurm_extender_placement_handling_seconds"),
            unit="s",
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
