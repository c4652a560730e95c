"""Whether Slurm makes the jobs that it is asked for: with their keys, and as large.

A job_submit plugin may overwrite AdminComment and anything else, in one partition or in all. A queued
job is read before its Pod is bound in any case. A job that was granted at once is not read, to save the
call: so the first of them in a partition is read, and the others are trusted until an altered job is
found in that partition.
"""

from collections.abc import Callable
from math import inf
from typing import Any

from extender.record.placeholder import Placeholder
from extender.record.states import State
from slurm_client.model import Grant

_USED = frozenset({State.QUEUED, State.ALLOCATED, State.BOUND})
Heard = Callable[[str | None], None]


class Signatures:
    """`heard` is told in words which jobs have lost their keys, None where none has any more."""

    def __init__(self, heard: Heard = lambda _: None) -> None:
        self._heard = heard
        self._kept: set[str] = set()
        """Partitions where a key of the token's own user was read back."""
        self._lost: dict[str, int | None] = {}
        """The jobs that have lost theirs, or the last ones of Pods that are refused for it, by uid."""

    def sifted(self, partition: str, result: Any) -> Any:
        """Returns the result of an effect; None instead of an immediate grant if the job must be read
        first, because no job in the partition was read yet."""
        first = isinstance(result, Grant) and partition not in self._kept
        return None if first else result

    def follow(self, partition: str, record: Placeholder) -> None:
        """Takes what a record says of its job's key."""
        uid, why_not = record.uid, record.rejections.forbidden_because
        if why_not is not None and why_not.until < inf:  # Slurm's configuration is to be mended
            self._distrust(partition)
        elif _is_read(record):
            self._kept.add(partition)
        lost = record.job.has_lost_key and record.state is not State.DONE
        if lost is (uid in self._lost):  # as nearly always
            return
        if lost:
            self._distrust(partition)
            self._lost[uid] = record.job.id
            self._tell()
        else:
            self.forget(uid)

    def forget(self, uid: str) -> None:
        """Forgets a record, if it is one of those."""
        if self._lost.pop(uid, 0) != 0:
            self._tell()

    def _distrust(self, partition: str) -> None:
        self._kept.discard(partition)

    def _tell(self) -> None:
        job_id = next(iter(self._lost.values()), None)
        words = (
            f"a job_submit plugin, or an administrator, overwrites the AdminComment of placeholders:"
            f" {len(self._lost)} Pods are concerned, job {job_id} is one"
        )
        self._heard(words if self._lost else None)


def _is_read(record: Placeholder) -> bool:
    """Returns True if a job of the token's own user was read with its key, and is in use."""
    job = record.job
    read = job.identity is not None and not job.has_lost_key and record.state in _USED
    return read and record.request.job.user_id is None
