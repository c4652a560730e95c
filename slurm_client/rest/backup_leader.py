"""Time since which a backup slurmctld leads, by GET ping.

A backup starts long before the take-over, and reports its own start. A take-over may lose the last
seconds of Slurm's state, as a restart may.
"""

from collections.abc import Mapping, Sequence
from typing import Any


class BackupLeader:
    """The backup that leads, with the time at which the backup was first seen to lead."""

    def __init__(self) -> None:
        self._seen: tuple[int, int] | None = None

    def since(self, pings: Sequence[Mapping[str, Any]], now: float) -> int | None:
        """Returns the time at which the current leader was first seen to lead, in UNIX seconds; None if
        the primary slurmctld leads. The first slurmctld of slurm.conf that responds leads
        (slurm.conf(5), SlurmctldHost)."""
        leader = next((place for place, one in enumerate(pings) if one.get("responding")), 0)
        if leader == 0:
            self._seen = None
        elif self._seen is None or self._seen[0] != leader:
            self._seen = leader, int(now)
        return None if self._seen is None else self._seen[1]
