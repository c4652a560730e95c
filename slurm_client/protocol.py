"""The interface for all calls to Slurm. `rest.SlurmRest` and `in_memory.InMemorySlurm` implement this
interface.

Every method may raise `Unreachable`, `OutcomeUnknown`, `RetryLater` and `NeedsOperator` (see `errors`).
The docstring of a method names its other errors. After any error, every method may be called again. If
OutcomeUnknown is raised while a job is created, repeat the call with the same job id, so that Slurm
cannot create a second job.
"""

from collections.abc import Iterable, Mapping
from typing import Protocol

from slurm_client.job_state import AllStates, JobState
from slurm_client.model import Grant, Job, JobChanges, JobSpec, Node, Partition
from slurm_client.reservation import Reservation
from slurm_client.rights import UserRights
from slurm_client.server import Capabilities, Configuration


class Slurm(Protocol):
    """A Slurm controller. An adapter such as `rest.SlurmRest` makes the calls."""

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities that `connect` has read. Raises RuntimeError before `connect`."""

    async def connect(self) -> Capabilities:
        """Reads the server's API version and capabilities. Idempotent. Raises NeedsOperator if this
        client knows none of the server's API versions."""

    async def configuration(self) -> Configuration:
        """Returns slurm.conf as slurmctld runs with it. A field that the server does not report is None.
        Before API v0.0.45, all fields except the boot time are None."""

    async def ping(self) -> None:
        """Raises an error if slurmctld does not answer, or if slurmctld rejects the token."""

    async def allocate(self, spec: JobSpec, job_id: int) -> int:
        """Allocates nodes for a job at once, or not at all. Returns the job id.

        Call `job` afterwards to read the grant, and to see if the job runs. Slurm 26.05.5 lets a job
        wait if its time limit is over the partition's limit (EnforcePartLimits=NO).

        Raises NoRoomNow if Slurm cannot start the job now, or if any limit of a QOS or account is
        reached. Then `job_id` is used up, and the caller submits the job under the next id. Raises
        JobIdTaken if Slurm already has, or had, a job with the id. Then the caller reads that job to see
        if it is the caller's own. Raises InvalidRequest for a job that can never run. Also raises
        InvalidRequest for a `user_id` or `group_id` of a user other than the token's, because Slurm
        would ignore both fields.
        """

    async def submit(self, spec: JobSpec, job_id: int) -> int:
        """Queues a placeholder job, and returns the job id. Raises JobIdTaken if Slurm already has, or
        had, a job with the id. Raises InvalidRequest for a job that can never run."""

    async def may_choose_ids(self) -> bool:
        """Returns True if the token may choose job ids and act for other users. Only the tokens of root
        and SlurmUser may do so. To find out, sends a job that Slurm rejects in any case, after the check
        of the rights. job_submit plugins see this job. Raises InvalidRequest if Slurm rejects the job
        for another reason."""

    async def states(self, ids: Iterable[int]) -> Mapping[int, JobState]:
        """Returns the states of these jobs. The reply has 38 bytes for each job. Unknown ids are absent
        from the result. If the entry of a job is unreadable, the job's state is UNREAD."""

    async def all_states(self) -> AllStates:
        """Returns the states of all jobs that Slurm remembers, and the waiting jobs. For 10,000 jobs,
        the call takes 0.13 s and 0.4 MB (24.11: 0.8 MB). An absent job may be one of the `nameless`
        entries."""

    async def job(self, job_id: int) -> Job | None:
        """Returns a job, or None for an unknown job. Raises Unreadable if the job's entry is
        unreadable."""

    async def grant(self, job_id: int) -> Grant | None:
        """Returns a job's grant. Uses the call with the smallest reply. Returns None if the job waits,
        has ended or is unknown. A job with a grant does not always run, because a suspended job also has
        nodes and cores."""

    async def update(self, job_id: int, changes: JobChanges) -> None:
        """Changes a job. Raises InvalidRequest for an unknown or ended job, and for unknown nodes."""

    async def cancel(self, job_id: int, name: str | None = None) -> None:
        """Ends a job. If `name` is given and the job has another name, raises OtherJob and leaves the
        job alone. Slurm itself compares the names, so this call cannot end a newer job with the same id.
        Idempotent: an unknown or ended job counts as success."""

    async def canceller(self, job_id: int) -> str | None:
        """Returns the user that cancelled a job: the user's name, or the number of a user without a
        name. Returns None if the job ended in another way, if Slurm has no accounting, or if the
        accounting does not know the user yet. slurmctld itself does not report the user (24.11,
        26.05)."""

    async def rights(self, user_id: int | None) -> UserRights:
        """Returns the accounts, QOS and reservations of a user. If `user_id` is None, the user is the
        token's own. The method makes about five short calls, and is meant for messages only."""

    async def nodes(self) -> tuple[Node, ...]:
        """Returns all nodes."""

    async def node(self, name: str) -> Node | None:
        """Returns one node with its current allocations, or None for an unknown node."""

    async def drain_node(self, name: str, reason: str) -> None:
        """Drains a node. Jobs on the node continue. `reason` replaces the node's earlier reason. Raises
        InvalidRequest for an unknown node."""

    async def undrain_node(self, name: str) -> None:
        """Removes the state DRAIN from a node, and changes no other state. Raises InvalidRequest for an
        unknown node."""

    async def down_node(self, name: str, reason: str) -> None:
        """Sets a node DOWN, so that the node's jobs end as NODE_FAIL. The node takes no jobs until an
        administrator resumes or deletes the node. With ReturnToService=2, the node also takes jobs again
        when its slurmd registers. `reason` replaces the node's earlier reason. Raises InvalidRequest for
        an unknown node."""

    async def delete_node(self, name: str) -> None:
        """Deletes a dynamic node. Idempotent: an unknown node counts as success. If the node's slurmd
        still runs, the node comes back only at the next start of this slurmd.

        Raises InvalidRequest if the node is not dynamic, has jobs, or is in a reservation that began
        more than a second ago. If a reservation begins later, or began within the last second, the
        reservation loses the node for good (24.11 still names the node). If such a reservation has no
        other nodes, Slurm deletes the reservation, except if `Reservation.follows` is True.
        """

    async def reservations(self) -> tuple[Reservation, ...]:
        """Returns all reservations, including future reservations. Raises Unreadable if any entry is
        unreadable."""

    async def validate_reservations(self, node: str) -> None:
        """Makes Slurm check the nodes of its reservations soon. Slurm does this check after each change
        or deletion of a node, but not after a registration. This call sends an empty change of `node`,
        so nothing else changes. Raises InvalidRequest for an unknown node."""

    async def partitions(self) -> tuple[Partition, ...]:
        """Returns all partitions, with their nodes."""

    async def aclose(self) -> None:
        """Closes all connections."""
