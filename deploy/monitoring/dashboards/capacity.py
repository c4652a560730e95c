"""The dashboard that shows what is in use of the nodes of both systems, and who asks for more."""

from typing import Final

from deploy.monitoring.panel import Dashboard, Panel, Query, Row
from deploy.monitoring.queries import summed

CAPACITY: Final = Dashboard(
    "capacity",
    "Capacity",
    "How much of the nodes that both systems share is in use, and who asks for more?",
    (
        Row(
            "In use",
            (
                Panel("Nodes", (summed("slurm_extender_slurm_nodes", "state"),), stacked=True),
                Panel("CPUs", (summed("slurm_extender_slurm_cpus", "state"),), stacked=True),
                Panel("GPUs", (summed("slurm_extender_slurm_gpus", "state"),), stacked=True),
                Panel(
                    "Memory",
                    (summed("slurm_extender_slurm_memory_bytes", "state"),),
                    "bytes",
                    stacked=True,
                ),
                Panel("Adopted Pods", (summed("slurm_extender_adopted", "stage"),)),
            ),
        ),
        Row(
            "Demand",
            (
                Panel("Pending jobs of pools", (summed("slurm_extender_pool_pending_jobs", "pool"),)),
                Panel("Nodes that they ask for", (summed("slurm_extender_pool_pending_nodes", "pool"),)),
                Panel("CPUs that they ask for", (summed("slurm_extender_pool_pending_cpus", "pool"),)),
                Panel("GPUs that they ask for", (summed("slurm_extender_pool_pending_gpus", "pool"),)),
            ),
        ),
        Row(
            "Ids",
            (
                Panel(
                    "Job ids",
                    (
                        Query("max(slurm_extender_next_job_id)", "next native one"),
                        Query("max(slurm_extender_job_id_range_first)", "first of placeholders"),
                        Query("max(slurm_extender_job_id_range_end)", "end of placeholders"),
                    ),
                ),
            ),
        ),
        Row(
            "Slurm's own",
            (
                Panel(
                    "CPUs idle",
                    (Query("max by (partition) (slurm_partition_nodes_cpus_idle)", "{{partition}}"),),
                ),
                Panel(
                    "CPUs allocated",
                    (Query("max by (partition) (slurm_partition_nodes_cpus_alloc)", "{{partition}}"),),
                ),
                Panel(
                    "GPUs allocated",
                    (Query("max by (partition) (slurm_partition_jobs_gpus_alloc)", "{{partition}}"),),
                ),
            ),
        ),
    ),
)
