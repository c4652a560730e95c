"""Whether Slurm makes the jobs that it is asked for: with their keys, and as large.

A job_submit plugin may overwrite AdminComment and anything else, in one partition or in all. A job
that was queued is read before its Pod is bound in any case. One that was granted at once is not, to
save the call: so the first of a partition is read, and the others are trusted until one there is found
to be otherwise.
"""

from collections.abc import Callable
from math import inf

from extender.placement.placeholder import Placeholder
from extender.placement.states import State

_USED = frozenset({State.QUEUED, State.ALLOCATED, State.BOUND})
Heard = Callable[[str | None], None]


class Signatures:
    """`heard` is told in words which jobs have lost their keys, None where none has any more."""

    def __init__(self, heard: Heard = lambda _: None) -> None:
        self._heard = heard
        self._kept: set[str] = set()
        """The partitions where a key was read back."""
        self._lost: dict[str, int | None] = {}
        """The jobs that have lost theirs, or the last ones of Pods that are refused for it, by uid."""

    def trusted(self, partition: str) -> bool:
        """Tells whether a job of this partition needs no reading to be known for ours."""
        return partition in self._kept

    def follow(self, partition: str, record: Placeholder) -> None:
        """Takes what a record says of its job's key."""
        uid, why_not = record.uid, record.forbidden_because
        if why_not is not None and why_not.until < inf:  # Slurm's configuration is to be mended
            self._kept.discard(partition)
        elif record.job.identity is not None and not record.job.unsigned and record.state in _USED:
            self._kept.add(partition)
        lost = record.job.unsigned and record.state is not State.DONE
        if lost is (uid in self._lost):  # as nearly always
            return
        if lost:
            self._kept.discard(partition)
            self._lost[uid] = record.job.id
            self._tell()
        else:
            self.forget(uid)

    def forget(self, uid: str) -> None:
        """Forgets a record, if it is one of those."""
        if self._lost.pop(uid, 0) != 0:
            self._tell()

    def _tell(self) -> None:
        job_id = next(iter(self._lost.values()), None)
        words = (
            f"a job_submit plugin, or an administrator, overwrites the AdminComment of placeholders:"
            f" {len(self._lost)} Pods are concerned, job {job_id} is one"
        )
        self._heard(words if self._lost else None)
