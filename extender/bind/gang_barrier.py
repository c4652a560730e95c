"""Holds the /bind calls of a gang until kube-scheduler has called for each member. So the gang starts as
a whole: if one member finds no Node, no member is bound.

kube-scheduler binds Pods in parallel, and keeps hundreds of calls open (1.31 to 1.37). All calls come
from one kube-scheduler, the leader, to the extender beside this kube-scheduler.

If a member is already bound by the job, the barrier is open: the other members follow as fast as
possible. The barrier is also open after a crash between two Bindings, and for the Pod that replaces a
lost member.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from extender.bind.job_as_read import JobAsRead
from extender.kube_scheduler.configuration import BIND_TIMEOUT_S
from extender.pod_request.workload import Workload

HOLD_S: Final = 0.6 * BIND_TIMEOUT_S
"""Longest time that a call waits for other members."""
MORE_S: Final = 0.2 * BIND_TIMEOUT_S
"""Seconds that the Binding of a member may take, beyond the time of other calls."""
_LOOKS_S: Final = (0.3, 1.0, 5.0)
"""Pauses before the looks for bound members. The last pause is repeated."""


class MembersMissing(Exception):
    """Raised if kube-scheduler did not call for all members in time. `missing` is the number of members
    without a call."""

    def __init__(self, missing: int) -> None:
        super().__init__(missing)
        self.missing = missing


@dataclass(eq=False)
class _Gate:
    size: int
    inside: Counter[str] = field(default_factory=Counter)
    """Number of calls that wait, or have passed and are not finished, by the uid of the member."""
    most: int = 0
    """Largest number of members inside at the same time."""
    opened: asyncio.Future[None] = field(default_factory=asyncio.Future)
    look: asyncio.Task[None] | None = None
    job: asyncio.Task[JobAsRead] | None = None

    def open(self) -> None:
        if not self.opened.done():
            self.opened.set_result(None)


class GangBarrier:
    """The barriers of all gangs, one for each job."""

    def __init__(
        self,
        some_bound: Callable[[Workload, int], Awaitable[bool]],
        read: Callable[[int], Awaitable[JobAsRead]],
    ) -> None:
        """`some_bound` returns True if a member of a gang is bound by a job. `read` reads a job."""
        self._some_bound, self._read = some_bound, read
        self._gates: dict[tuple[str, int], _Gate] = {}

    async def enter(self, gang: Workload, job_id: int, uid: str) -> None:
        """Waits until all members of a gang have entered, or one member is bound. `uid` is the entering
        member, which must leave later (`leave`). Raises MembersMissing after HOLD_S."""
        gate = self._gates.setdefault((gang.uid, job_id), _Gate(gang.size))
        gate.inside[uid] += 1
        gate.most = max(gate.most, len(gate.inside))
        if gate.most >= gate.size:
            gate.open()
        elif gate.look is None:
            gate.look = asyncio.create_task(self._look(gate, gang, job_id))
        try:
            async with asyncio.timeout(HOLD_S):
                await asyncio.shield(gate.opened)
        except TimeoutError:
            raise MembersMissing(gate.size - gate.most) from None

    def leave(self, gang: Workload, job_id: int, uid: str) -> None:
        """Ends the call of a member. The last member closes the barrier again."""
        gate = self._gates.get((gang.uid, job_id))
        if gate is None:
            return
        gate.inside -= Counter([uid])
        if not gate.inside:
            del self._gates[gang.uid, job_id]
            if gate.look is not None:
                gate.look.cancel()

    async def job(self, gang: Workload, job_id: int) -> JobAsRead:
        """Returns the job of members that have passed. Members that ask at the same time share one read,
        because Slurm's reply for a job of 64 nodes has hundreds of kilobytes. A later member reads the
        job again, because the job may have ended since then (invariant I2). Raises SlurmError."""
        gate = self._gates.get((gang.uid, job_id))
        if gate is None:
            return await self._read(job_id)
        if gate.job is None or gate.job.done():
            gate.job = asyncio.ensure_future(self._read(job_id))
        return await asyncio.shield(gate.job)

    async def _look(self, gate: _Gate, gang: Workload, job_id: int) -> None:
        pauses = iter(_LOOKS_S)
        try:
            while not gate.opened.done():
                await asyncio.sleep(next(pauses, _LOOKS_S[-1]))
                if await self._some_bound(gang, job_id):
                    gate.open()
        except Exception as error:  # noqa: BLE001 -- the waiting calls fail with it
            if not gate.opened.done():
                gate.opened.set_exception(error)
