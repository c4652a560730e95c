"""Whether Slurm makes the jobs that it is asked for: with their keys, and as large.

A job_submit plugin may overwrite AdminComment and anything else, in one partition or in all. A job
that was queued is read before its Pod is bound in any case. One that was granted at once is not, to
save the call: so the first that a user has in a partition is read, and the others are trusted until one
in that partition is found to be otherwise.
"""

from collections.abc import Callable
from math import inf
from typing import Any

from extender.record.placeholder import Placeholder
from extender.record.states import State
from slurm_client.model import Grant

_USED = frozenset({State.QUEUED, State.ALLOCATED, State.BOUND})
User = int | None
Heard = Callable[[str | None], None]


class Signatures:
    """`heard` is told in words which jobs have lost their keys, None where none has any more."""

    def __init__(self, heard: Heard = lambda _: None) -> None:
        self._heard = heard
        self._kept: set[tuple[str, User]] = set()
        """The partitions, and the users there, where a key was read back."""
        self._lost: dict[str, int | None] = {}
        """The jobs that have lost theirs, or the last ones of Pods that are refused for it, by uid."""

    def sifted(self, partition: str, user: User, result: Any) -> Any:
        """Returns what came of an effect, without what was granted at once where the job must be read to
        be known for ours: the first that a user has in a partition."""
        first = isinstance(result, Grant) and (partition, user) not in self._kept
        return None if first else result

    def follow(self, partition: str, record: Placeholder) -> None:
        """Takes what a record says of its job's key."""
        uid, why_not = record.uid, record.forbidden_because
        if why_not is not None and why_not.until < inf:  # Slurm's configuration is to be mended
            self._distrust(partition)
        elif record.job.identity is not None and not record.job.unsigned and record.state in _USED:
            self._kept.add((partition, record.request.job.user_id))
        lost = record.job.unsigned and record.state is not State.DONE
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
        self._kept = {each for each in self._kept if each[0] != partition}

    def _tell(self) -> None:
        job_id = next(iter(self._lost.values()), None)
        words = (
            f"a job_submit plugin, or an administrator, overwrites the AdminComment of placeholders:"
            f" {len(self._lost)} Pods are concerned, job {job_id} is one"
        )
        self._heard(words if self._lost else None)
