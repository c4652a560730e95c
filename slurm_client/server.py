"""The server as values: its API and capabilities, and slurm.conf as slurmctld runs with it."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The capabilities of the server, read once when connecting."""

    api_version: str
    """The version in use: "v0.0.45"."""
    release: str
    """"26.05.5"."""
    cluster: str
    external_jobs: bool
    """EXTERNAL_JOB placeholders (job_desc_msg's flags)."""
    configuration: bool = False
    """GET /conf (v0.0.45)."""
    resources: bool = False
    """GET /resources/{job_id} (v0.0.44)."""
    default_partition: bool = False
    """The server reports `Partition.default` (v0.0.45), which is False for all partitions otherwise."""
    books: bool = False
    """GET /slurmdb/VERSION/job/{job_id}: slurmdbd's record of a job."""


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
    return_to_service: str | None = None  # in slurmrestd's words: "all" is 2
    slurmctld_parameters: tuple[str, ...] | None = None
    max_node_count: int | None = None
    slurmd_timeout_s: int | None = None  # 0: slurmctld gives no silent node up
    next_job_id: int | None = None
    boot_time: int | None = None
    """Start of slurmctld in UNIX seconds. Before v0.0.45 also midnight (UTC), and `sdiag -r`. If a
    backup leads: not before this client first saw the backup lead."""


def counts_memory(select_type_parameters: Iterable[str]) -> bool:
    """Returns True if jobs get memory of their own (slurm.conf(5) SelectTypeParameters): with
    CR_CPU_Memory, CR_Core_Memory, CR_Socket_Memory or CR_Memory. Otherwise jobs share memory."""
    return any(each.upper().endswith("_MEMORY") for each in select_type_parameters)
