"""The calls to a Slurm: the one interface of `rest.SlurmRest` and `in_memory.InMemorySlurm`.

Every method may raise `Unreachable`, `OutcomeUnknown`, `RetryLater` and `NeedsOperator` (see `errors`);
a method names the other errors that it raises. Every method may be called again after any error; a job
must be created again under the same id, or under the same name.
"""

from collections.abc import Iterable, Mapping
from typing import Protocol

from slurm_client.model import (
    AllStates,
    Grant,
    Job,
    JobChanges,
    JobSpec,
    JobState,
    Node,
    Partition,
)
from slurm_client.reservation import Reservation
from slurm_client.rights import UserRights
from slurm_client.server import Capabilities, Configuration


class Slurm(Protocol):
    """A Slurm controller, behind any adapter."""

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities that `connect` has read; RuntimeError before it."""

    async def connect(self) -> Capabilities:
        """Ask the server which API and which capabilities it has. Idempotent.

        NeedsOperator when it speaks no API version that this client knows.
        """

    async def configuration(self) -> Configuration:
        """slurm.conf as slurmctld has it; fields are None where the server does not tell. Before v0.0.45
        it tells the boot time alone."""

    async def ping(self) -> None:
        """Return when slurmctld answers and takes the token, raise otherwise."""

    async def allocate(self, spec: JobSpec, job_id: int) -> int:
        """Allocate at once, or not at all; returns the job id.

        The caller reads with `job` what the job has, and whether it runs: with a time limit over the
        partition's, Slurm 26.05.5 takes the job and lets it wait (EnforcePartLimits=NO). The job is the
        token's own user's: `spec.user_id` and `group_id` of anyone else are refused by InvalidRequest,
        since Slurm would ignore them. NoRoomNow: rejected, also by any limit of a QOS or account, and
        `job_id` is used up: submit under the next one. JobIdTaken: compare. InvalidRequest: never.
        """

    async def submit(self, spec: JobSpec, job_id: int) -> int:
        """Queue a placeholder; returns the job id. JobIdTaken: compare. InvalidRequest: never."""

    async def may_choose_ids(self) -> bool:
        """Whether the token may choose the ids of jobs and act for other users, as root's and
        SlurmUser's may, and no others. It asks for a job that no Slurm makes: a job_submit plugin sees
        it. InvalidRequest: Slurm rejects it for another reason than either, and does not say."""

    async def states(self, ids: Iterable[int]) -> Mapping[int, JobState]:
        """The states of these jobs; ids that Slurm does not know are absent, and one of which its answer
        cannot be read is UNREAD. 38 bytes a job."""

    async def all_states(self) -> AllStates:
        """The states of all jobs that Slurm remembers, and which of them wait (0.13 s and 0.4 MB at
        10,000; 24.11: 0.8 MB). Where some entries are `nameless` a job that is absent may be one of
        them."""

    async def job(self, job_id: int) -> Job | None:
        """One job; None when Slurm does not know it. Unreadable: its entry cannot be read."""

    async def grant(self, job_id: int) -> Grant | None:
        """What a job has been given, in as few bytes as the server can say it; None where it has
        nothing (it waits, has ended, or is not known). Whether it runs is another question."""

    async def update(self, job_id: int, changes: JobChanges) -> None:
        """Change a job that has not ended. InvalidRequest: no such job, it ended, unknown nodes."""

    async def cancel(self, job_id: int, name: str | None = None) -> None:
        """End a job. Idempotent: an unknown or an ended job is success. OtherJob: the job is not called
        `name`. Slurm itself compares the name, so that no other job is ended that has the id by now.
        None ends any job."""

    async def canceller(self, job_id: int) -> str | None:
        """The user that cancelled a job, by Slurm's accounting: its name, or its number where it has no
        name. None where the accounting does not say: there is none, it has not heard of it yet, or the
        job ended otherwise. slurmctld itself does not tell (24.11, 26.05)."""

    async def rights(self, user_id: int | None) -> UserRights:
        """The accounts, QOS and reservations of a user; None is the token's own user. For messages: some
        five short calls."""

    async def nodes(self) -> tuple[Node, ...]:
        """All nodes."""

    async def node(self, name: str) -> Node | None:
        """One node as it is now, in as little time as the server can tell it; None when Slurm does not
        know it."""

    async def drain_node(self, name: str, reason: str) -> None:
        """Have a node take no more jobs; its jobs go on. The reason replaces any other, so look first.
        InvalidRequest: no such node."""

    async def undrain_node(self, name: str) -> None:
        """Take back a drain, and nothing else that is wrong with a node: a node that is not drained
        stays as it is. InvalidRequest: no such node."""

    async def down_node(self, name: str, reason: str) -> None:
        """Give a node up: its jobs end as NODE_FAIL, and it takes no more, until an administrator brings
        it back or it is deleted. Where a node returns by itself (ReturnToService=2), also until its
        slurmd registers. The reason replaces any other. InvalidRequest: no such node."""

    async def delete_node(self, name: str) -> None:
        """Have Slurm forget a dynamic node. Idempotent: an unknown node is success. Its slurmd, if it
        lives, does not bring it back before its own next start.

        InvalidRequest: the node has jobs or is in a reservation that has begun; or it is not dynamic. A
        reservation that has not begun, or did within the last second, loses the node, also when that
        comes anew (24.11 names it still), and is gone where it has no other, unless it `follows`.
        """

    async def reservations(self) -> tuple[Reservation, ...]:
        """All reservations, also those that are to begin. Unreadable: one of them cannot be read."""

    async def validate_reservations(self, node: str) -> None:
        """Have Slurm look, soon, whether its reservations have the nodes that they are to have. It does
        whenever a node is changed or deleted, but not when one registers: this changes none.
        InvalidRequest: no such node."""

    async def partitions(self) -> tuple[Partition, ...]:
        """All partitions, with their nodes."""

    async def aclose(self) -> None:
        """Close all connections."""
