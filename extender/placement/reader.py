"""What others may ask the ledger: nothing here changes a record."""

from __future__ import annotations

from collections.abc import Iterator

from extender.placement.index import Records
from extender.placement.member import Member
from extender.placement.placeholder import Placeholder
from extender.placement.states import WATCHED, State


class LedgerReader:
    """The records of all placeholders, for whoever has to know of them."""

    def __init__(self) -> None:
        self._records = Records()

    @property
    def placeholders(self) -> Iterator[Placeholder]:
        """Yields every record, tombstones included."""
        return iter(self._records)

    def record_of(self, uid: str) -> Placeholder | None:
        """Returns the record of a Pod, or under one of the ledger's own keys."""
        return self._records.of_pod(uid)

    def allocated(self, uid: str) -> tuple[Placeholder, Member] | None:
        """Returns the record and the member of a Pod that carries its allocation and is not bound."""
        record = self._records.of_pod(uid)
        member = None if record is None else record.member(uid)
        if record is None or member is None or record.state is not State.ALLOCATED:
            return None
        carried = member.slot is not None and member.pod.allocation == member.slot
        return (record, member) if carried and member.pod.node is None else None

    def holding(self, node: str) -> tuple[Placeholder, ...]:
        """Returns the records whose Pods are on a Node, or may yet be bound there."""
        return self._records.holding(node)

    def has_job(self, job_id: int) -> bool:
        """Tells whether a job is known to be a placeholder of ours, whatever it has for a key."""
        return any(record.job.id == job_id and record.job.owned for record in self._records)

    @property
    def evicting(self) -> Iterator[Placeholder]:
        """Yields the records whose jobs ended first, while their Pods are still there."""
        return iter(self._records.of(State.EVICTING))

    def watched_jobs(self) -> frozenset[int]:
        """Returns the ids of the jobs whose states matter."""
        return frozenset(
            p.job.id for p in self._records.of(*WATCHED) if p.job.id is not None and p.watched
        )

    def waits(self) -> bool:
        """Tells whether a change in Slurm would move a Pod on at once."""
        return self._records.any_of(State.QUEUED)
