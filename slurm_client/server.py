"""Values that describe the server: its API and capabilities, and slurm.conf as slurmctld runs with
it."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The capabilities of the server, read once when connecting."""

    api_version: str
    """The API version in use, like "v0.0.45"."""
    release: str
    """Slurm's release, like "26.05.5"."""
    cluster: str
    external_jobs: bool
    """True if the server has EXTERNAL_JOB placeholders (job_desc_msg's flags)."""
    configuration: bool = False
    """True if the server has GET /conf (v0.0.45)."""
    resources: bool = False
    """True if the server has GET /resources/{job_id} (v0.0.44)."""
    default_partition: bool = False
    """True if the server reports `Partition.default` (v0.0.45). Otherwise, `Partition.default` is False
    for all partitions."""
    books: bool = False
    """True if the server has GET /slurmdb/VERSION/job/{job_id}, which returns slurmdbd's record of a
    job."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """slurm.conf as slurmctld runs with it. A field that the server does not report is None."""

    cluster_name: str | None = None
    first_job_id: int | None = None
    max_job_id: int | None = None
    max_job_count: int | None = None
    kill_wait_s: int | None = None
    min_job_age_s: int | None = None
    preempt_type: str | None = None
    preempt_mode: tuple[str, ...] | None = None
    slurm_user_id: int | None = None
    slurm_user: str | None = None
    scheduler_parameters: tuple[str, ...] | None = None
    message_timeout_s: int | None = None
    select_type: str | None = None  # "select/cons_tres"
    select_type_parameters: tuple[str, ...] | None = None  # in capitals: "CR_CORE_MEMORY"
    task_plugins: tuple[str, ...] | None = None  # "task/cgroup"
    proctrack_type: str | None = None
    prologs: tuple[str, ...] | None = None  # slurmd runs these programs before a job
    prolog_flags: tuple[str, ...] | None = None  # "Alloc"
    slurmctld_prologs: tuple[str, ...] | None = None
    slurmctld_epilogs: tuple[str, ...] | None = None
    accounting_storage_type: str | None = None  # "" without accounting
    accounting_store_flags: tuple[str, ...] | None = None  # "job_comment"
    return_to_service: str | None = None  # in slurmrestd's words: "all" means ReturnToService=2
    slurmctld_parameters: tuple[str, ...] | None = None
    max_node_count: int | None = None
    slurmd_timeout_s: int | None = None  # with 0, slurmctld never sets a silent node DOWN
    next_job_id: int | None = None
    boot_time: int | None = None
    """Start of slurmctld in UNIX seconds. Before v0.0.45, midnight (UTC) and `sdiag -r` also look like a
    start. If a backup slurmctld leads, this is at least the time at which this client first saw the
    backup lead."""


def counts_memory(select_type_parameters: Iterable[str]) -> bool:
    """Returns True if Slurm gives each job its own memory (slurm.conf(5) SelectTypeParameters). The
    values for this are CR_CPU_Memory, CR_Core_Memory, CR_Socket_Memory and CR_Memory. With other values,
    the jobs on a node share its memory."""
    return any(each.upper().endswith("_MEMORY") for each in select_type_parameters)
