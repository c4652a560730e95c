"""Finds the time since which a backup slurmctld leads, from the replies to GET ping.

The start time that a backup slurmctld reports does not help, because a backup starts long before it
takes over. Like a restart, a take-over may lose the last seconds of Slurm's state.
"""

from collections.abc import Mapping, Sequence
from typing import Any


class BackupLeader:
    """Remembers the backup that leads, and the time at which this client first saw the backup lead."""

    def __init__(self) -> None:
        self._seen: tuple[int, int] | None = None

    def since(self, pings: Sequence[Mapping[str, Any]], now: float) -> int | None:
        """Returns the time at which this client first saw the current leader lead, in UNIX seconds.
        Returns None if the primary slurmctld leads. The leader is the first slurmctld in slurm.conf that
        responds (slurm.conf(5), SlurmctldHost)."""
        leader = next((place for place, one in enumerate(pings) if one.get("responding")), 0)
        if leader == 0:
            self._seen = None
        elif self._seen is None or self._seen[0] != leader:
            self._seen = leader, int(now)
        return None if self._seen is None else self._seen[1]
