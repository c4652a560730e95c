"""The server as values: which API and capabilities it has, and slurm.conf as slurmctld runs with it."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The capabilities of the server, read once when connecting."""

    api_version: str
    """The one used: "v0.0.45"."""
    release: str
    """"26.05.5"."""
    cluster: str
    external_jobs: bool
    """EXTERNAL_JOB placeholders (job_desc_msg's flags)."""
    configuration: bool = False
    """GET /conf (v0.0.45)."""
    resources: bool = False
    """GET /resources/{job_id} (v0.0.44)."""
    new_node: bool = False
    """POST /new/node/ (v0.0.44)."""
    default_partition: bool = False
    """Whether `Partition.default` is told (v0.0.45); where not, it is False of all."""
    books: bool = False
    """GET /slurmdb/VERSION/job/{job_id}: what slurmdbd has written down of a job."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """slurm.conf as slurmctld runs with it; every field None where the server does not tell."""

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
    """SlurmUser's name."""
    scheduler_parameters: tuple[str, ...] | None = None
    message_timeout_s: int | None = None
    select_type: str | None = None
    """SelectType: "select/cons_tres"."""
    select_type_parameters: tuple[str, ...] | None = None
    """SelectTypeParameters, in capitals: "CR_CORE_MEMORY"."""
    task_plugins: tuple[str, ...] | None = None
    """TaskPlugin: "task/cgroup"."""
    proctrack_type: str | None = None
    prologs: tuple[str, ...] | None = None
    """Prolog: the programs that slurmd runs before a job."""
    prolog_flags: tuple[str, ...] | None = None
    """PrologFlags: "Alloc"."""
    slurmctld_prologs: tuple[str, ...] | None = None
    """PrologSlurmctld, and EpilogSlurmctld: those that slurmctld runs."""
    slurmctld_epilogs: tuple[str, ...] | None = None
    accounting_storage_type: str | None = None
    """AccountingStorageType; "" without accounting."""
    accounting_store_flags: tuple[str, ...] | None = None
    """AccountingStoreFlags: "job_comment"."""
    return_to_service: str | None = None
    """ReturnToService in the words of slurmrestd: "all" is 2."""
    slurmctld_parameters: tuple[str, ...] | None = None
    max_node_count: int | None = None
    next_job_id: int | None = None
    boot_time: int | None = None
    """UNIX seconds when slurmctld started: it changes when slurmctld was restarted. Before v0.0.45 also
    at midnight (UTC), and by `sdiag -r`."""


def counts_memory(select_type_parameters: Iterable[str]) -> bool:
    """Returns whether jobs get memory of their own (slurm.conf(5) SelectTypeParameters): one of
    CR_CPU_Memory, CR_Core_Memory, CR_Socket_Memory and CR_Memory is set. Without, several jobs get the
    same memory."""
    return any(each.upper().endswith("_MEMORY") for each in select_type_parameters)
