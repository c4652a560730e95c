"""The calls to a Slurm: the one interface of `rest.SlurmRest` and `in_memory.InMemorySlurm`.

Every method may raise `Unreachable`, `OutcomeUnknown`, `RetryLater` and `NeedsOperator` (see `errors`);
a method names its other errors. Every method may be called again after any error; a job must be created
again under the same id, or under the same name.
"""

from collections.abc import Iterable, Mapping
from typing import Protocol

from slurm_client.model import AllStates, Grant, Job, JobChanges, JobSpec, JobState, Node, Partition
from slurm_client.reservation import Reservation
from slurm_client.rights import UserRights
from slurm_client.server import Capabilities, Configuration


class Slurm(Protocol):
    """A Slurm controller, behind any adapter."""

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities that `connect` has read. Raises RuntimeError before `connect`."""

    async def connect(self) -> Capabilities:
        """Reads the server's API version and capabilities. Idempotent. Raises NeedsOperator if this
        client knows none of the server's API versions."""

    async def configuration(self) -> Configuration:
        """Returns slurm.conf as slurmctld has it. Fields that the server does not report are None: all
        but the boot time before v0.0.45."""

    async def ping(self) -> None:
        """Returns if slurmctld answers and accepts the token; raises otherwise."""

    async def allocate(self, spec: JobSpec, job_id: int) -> int:
        """Allocates at once, or not at all; returns the job id.

        `job` reads the grant, and whether the job runs: Slurm 26.05.5 lets a job wait that has a time
        limit over the partition's (EnforcePartLimits=NO). Raises NoRoomNow for a rejection, also by any
        limit of a QOS or account: `job_id` is used up, and the caller submits under the next id. Raises
        JobIdTaken: the caller compares the jobs. Raises InvalidRequest for jobs that can never run, and
        for `user_id` or `group_id` of a user other than the token's: Slurm would ignore both.
        """

    async def submit(self, spec: JobSpec, job_id: int) -> int:
        """Queues a placeholder; returns the job id. Raises JobIdTaken, and InvalidRequest for jobs that
        can never run."""

    async def may_choose_ids(self) -> bool:
        """Returns True if the token may choose ids of jobs and act for other users: only root's and
        SlurmUser's tokens may. Sends a job that no Slurm makes; job_submit plugins see the job. Raises
        InvalidRequest if Slurm rejects the job for another reason."""

    async def states(self, ids: Iterable[int]) -> Mapping[int, JobState]:
        """Returns the states of jobs, for 38 bytes a job. Unknown ids are absent. A job with an
        unreadable entry is UNREAD."""

    async def all_states(self) -> AllStates:
        """Returns the states of all jobs that Slurm remembers, and the waiting jobs (0.13 s and 0.4 MB
        at 10,000; 24.11: 0.8 MB). Absent jobs may be among the `nameless` entries."""

    async def job(self, job_id: int) -> Job | None:
        """Returns a job; None for an unknown job. Raises Unreadable for an unreadable entry."""

    async def grant(self, job_id: int) -> Grant | None:
        """Returns a job's grant in as few bytes as the server can send; None for a job that waits, has
        ended or is unknown. A job with a grant need not run: a suspended job has nodes and cores."""

    async def update(self, job_id: int, changes: JobChanges) -> None:
        """Changes a job. Raises InvalidRequest for an unknown or ended job, and for unknown nodes."""

    async def cancel(self, job_id: int, name: str | None = None) -> None:
        """Ends a job; `name` None ends any job. Idempotent: an unknown or ended job is success. Raises
        OtherJob if the job has another name. Slurm compares the names: a new job of that id lives."""

    async def canceller(self, job_id: int) -> str | None:
        """Returns the name of the user that cancelled a job, or the number of a user without a name, by
        Slurm's accounting. None if there is no accounting, the accounting does not know yet, or the job
        ended otherwise. slurmctld itself does not report the user (24.11, 26.05)."""

    async def rights(self, user_id: int | None) -> UserRights:
        """Returns the accounts, QOS and reservations of a user; None is the token's own user. Takes some
        five short calls: for messages."""

    async def nodes(self) -> tuple[Node, ...]:
        """Returns all nodes."""

    async def node(self, name: str) -> Node | None:
        """Returns one node in as little time as the server needs; None for an unknown node."""

    async def drain_node(self, name: str, reason: str) -> None:
        """Drains a node; its jobs go on. The reason replaces any other reason. Raises InvalidRequest for
        an unknown node."""

    async def undrain_node(self, name: str) -> None:
        """Takes back a drain; changes no other state. Raises InvalidRequest for an unknown node."""

    async def down_node(self, name: str, reason: str) -> None:
        """Sets a node DOWN: its jobs end as NODE_FAIL. The node takes no jobs until an administrator
        resumes or deletes the node, or with ReturnToService=2 until its slurmd registers. The reason
        replaces any other reason. Raises InvalidRequest for an unknown node."""

    async def delete_node(self, name: str) -> None:
        """Deletes a dynamic node. Idempotent: an unknown node is success. A living slurmd brings the
        node back at the slurmd's next start only.

        Raises InvalidRequest if the node is not dynamic, has jobs or is in a reservation that has begun.
        A reservation that has not begun, or began within the last second, loses the node for good (24.11
        still names the node). Without other nodes the reservation is gone, unless it `follows`.
        """

    async def reservations(self) -> tuple[Reservation, ...]:
        """Returns all reservations, also future ones. Raises Unreadable for an unreadable entry."""

    async def validate_reservations(self, node: str) -> None:
        """Makes Slurm check the nodes of its reservations soon, as after each change or deletion of a
        node, but not after a registration. Changes nothing. Raises InvalidRequest for unknown nodes."""

    async def partitions(self) -> tuple[Partition, ...]:
        """Returns all partitions, with their nodes."""

    async def aclose(self) -> None:
        """Closes all connections."""
