"""The dashboard that shows what is in use of the nodes of both systems, and who asks for more."""

from typing import Final

from deploy.monitoring.panel import Query
from deploy.monitoring.queries import dashboard, panel, row, summed

CAPACITY: Final = dashboard(
    "capacity",
    "Capacity",
    "How much of the nodes that both systems share is in use, and who asks for more?",
    row(
        "In use",
        panel("Nodes", summed("slurm_extender_slurm_nodes", "state"), stacked=True),
        panel("CPUs", summed("slurm_extender_slurm_cpus", "state"), stacked=True),
        panel("GPUs", summed("slurm_extender_slurm_gpus", "state"), stacked=True),
        panel(
            "Memory", summed("slurm_extender_slurm_memory_bytes", "state"), unit="bytes", stacked=True
        ),
        panel("Adopted Pods", summed("slurm_extender_adopted", "stage")),
    ),
    row(
        "Demand",
        panel("Pending jobs of pools", summed("slurm_extender_pool_pending_jobs", "pool")),
        panel("Nodes that they ask for", summed("slurm_extender_pool_pending_nodes", "pool")),
        panel("CPUs that they ask for", summed("slurm_extender_pool_pending_cpus", "pool")),
        panel("GPUs that they ask for", summed("slurm_extender_pool_pending_gpus", "pool")),
    ),
    row(
        "Ids",
        panel(
            "Job ids",
            Query("max(slurm_extender_next_job_id)", "next native one"),
            Query("max(slurm_extender_job_id_range_first)", "first of placeholders"),
            Query("max(slurm_extender_job_id_range_end)", "end of placeholders"),
        ),
    ),
    row(
        "Slurm's own",
        panel(
            "CPUs idle", Query("max by (partition) (slurm_partition_nodes_cpus_idle)", "{{partition}}")
        ),
        panel(
            "CPUs allocated",
            Query("max by (partition) (slurm_partition_nodes_cpus_alloc)", "{{partition}}"),
        ),
        panel(
            "GPUs allocated",
            Query("max by (partition) (slurm_partition_jobs_gpus_alloc)", "{{partition}}"),
        ),
    ),
)
