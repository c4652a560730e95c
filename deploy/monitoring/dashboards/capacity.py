"""Dashboard of the use of the shared nodes, and of the demand for more nodes."""

from typing import Final

from deploy.monitoring.gpu_use import OF_PODS, held_by, used_by
from deploy.monitoring.panel import Panel, Query
from deploy.monitoring.queries import dashboard, panel, row, summed


def _gpus_by(label: str) -> Panel:
    """Returns the panel of the Pods' GPUs, in use and allocated, with a line for each value of a label
    of the jobs."""
    return panel(
        f"GPUs by {label}",
        Query(used_by(label), f"{{{{{label}}}}} in use"),
        Query(held_by(label), f"{{{{{label}}}}} allocated"),
        words="Needs SLURM_EXTENDER_JOB_INFO.",
    )


CAPACITY: Final = dashboard(
    "capacity",
    "Capacity",
    "How much of the shared nodes is in use? How much more do Pods and jobs request?",
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
        "GPU use of Pods",
        panel(
            "GPU use by Pod, the 20 lowest",
            Query(
                f"bottomk(20, avg by (pod_namespace, pod_name) ({OF_PODS}))",
                "{{pod_namespace}}/{{pod_name}}",
            ),
            unit="percentunit",
            words="This row needs dcgm-exporter.",
        ),
        panel(
            "GPU use by job, the 20 lowest",
            Query(f"bottomk(20, avg by (job_id) ({OF_PODS}))", "{{job_id}}"),
            unit="percentunit",
        ),
        _gpus_by("user"),
        _gpus_by("account"),
    ),
    row(
        "Demand",
        panel("Pending jobs of pools", summed("slurm_extender_pool_pending_jobs", "pool")),
        panel("Nodes for pending jobs", summed("slurm_extender_pool_pending_nodes", "pool")),
        panel("CPUs for pending jobs", summed("slurm_extender_pool_pending_cpus", "pool")),
        panel("GPUs for pending jobs", summed("slurm_extender_pool_pending_gpus", "pool")),
    ),
    row(
        "Ids",
        panel(
            "Job ids",
            Query("max(slurm_extender_next_job_id)", "next id of native jobs"),
            Query("max(slurm_extender_job_id_range_first)", "first id of placeholders"),
            Query("max(slurm_extender_job_id_range_end)", "end of the placeholders' range"),
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
