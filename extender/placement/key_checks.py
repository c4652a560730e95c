"""Check of new jobs in Slurm: jobs with their keys, and as large as requested.

A job_submit plugin may overwrite AdminComment and other fields, in one partition or in all. The extender
always reads a queued job before its Pod is bound. To save calls, the extender reads only the first
immediate job of each partition, and trusts the next ones until an altered job is found there.
"""

from collections.abc import Callable
from math import inf
from typing import Any

from extender.record.placeholder import Placeholder
from extender.record.states import State
from slurm_client.model import Grant

_USED = frozenset({State.QUEUED, State.ALLOCATED, State.BOUND})
OnChange = Callable[[str | None], None]


class KeyChecks:
    """`on_change` receives a text about jobs that have lost their keys; None if no such job is left."""

    def __init__(self, on_change: OnChange = lambda _: None) -> None:
        self._on_change = on_change
        self._kept: set[str] = set()
        """Partitions in which a key of the token's own user was read back."""
        self._lost: dict[str, int | None] = {}
        """Uid -> the job without its key, or the last job of a Pod rejected because of a lost key."""

    def sifted(self, partition: str, result: Any) -> Any:
        """Returns the result of an effect; None instead of an immediate grant if the job must be read
        first, because no job in the partition was read yet."""
        first = isinstance(result, Grant) and partition not in self._kept
        return None if first else result

    def follow(self, partition: str, record: Placeholder) -> None:
        """Takes note of the key of a record's job."""
        uid, why_not = record.uid, record.rejections.forbidden_because
        if why_not is not None and why_not.until < inf:  # Slurm's configuration must be fixed
            self._distrust(partition)
        elif _is_read(record):
            self._kept.add(partition)
        lost = record.job.has_lost_key and record.state is not State.DONE
        if lost is (uid in self._lost):  # the common case
            return
        if lost:
            self._distrust(partition)
            self._lost[uid] = record.job.id
            self._tell()
        else:
            self.forget(uid)

    def forget(self, uid: str) -> None:
        """Forgets a record."""
        if self._lost.pop(uid, 0) != 0:
            self._tell()

    def _distrust(self, partition: str) -> None:
        self._kept.discard(partition)

    def _tell(self) -> None:
        job_id = next(iter(self._lost.values()), None)
        words = (
            f"a job_submit plugin, or an administrator, overwrites the AdminComment of placeholders:"
            f" {len(self._lost)} Pods are concerned, for example job {job_id}"
        )
        self._on_change(words if self._lost else None)


def _is_read(record: Placeholder) -> bool:
    """Returns True if a job of the token's own user was read with its key, and is in use."""
    job = record.job
    read = job.identity is not None and not job.has_lost_key and record.state in _USED
    return read and record.request.job.user_id is None
