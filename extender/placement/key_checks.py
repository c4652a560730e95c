"""Decides which new jobs the extender reads before their Pods are bound, to check the key and the size
of the job.

A job_submit plugin may overwrite AdminComment and other fields, in one partition or in all. The extender
always reads a queued job. To save calls, the extender reads only the first immediate job of each
partition, and trusts the next immediate jobs. If the extender finds an altered job in the partition, the
extender also reads the next immediate job.
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
    """Notes the partitions in which jobs keep their keys. Also notes the jobs without their keys.
    `on_change` receives a text about the jobs without keys; None if no such job is left."""

    def __init__(self, on_change: OnChange = lambda _: None) -> None:
        self._on_change = on_change
        self._kept: set[str] = set()
        """Partitions in which the extender has read a job of the token's own user with the right key."""
        self._lost: dict[str, int | None] = {}
        """Uid -> the id of the job without the key. For a Pod that is rejected because of a lost key,
        the id of the last job."""

    def sifted(self, partition: str, result: Any) -> Any:
        """Returns the result of an effect. Returns None instead of an immediate grant if no job in the
        partition was read with its key yet. Then the extender reads the job first."""
        first = isinstance(result, Grant) and partition not in self._kept
        return None if first else result

    def follow(self, partition: str, record: Placeholder) -> None:
        """Notes whether a record's job has its key."""
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
