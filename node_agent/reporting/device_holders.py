"""The holders of devices: Pods, with the devices that Slurm granted to the jobs of the Pods.

The agent does not know the devices of native jobs, because Slurm's cgroups do not show the devices.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from node_agent.enforcement.keeper import Keeper
from node_agent.machine.devices import UNMONITORED, Files, Monitored, Names
from node_agent.machine.numbered import Machine
from node_agent.pods.claims import Claim
from node_agent.pods.node_pods import NodePods
from node_agent.reporting.job_files import JobFiles
from service.periodic import periodically

_LOOK_S: Final = 1.0
"""Interval between comparisons of the holders with the job files."""
_REPAIR_S: Final = 10.0
"""Interval between two writes of unchanged jobs. Another program may have changed the files."""

Report = Callable[[Exception | None], object]


class Holder(NamedTuple):
    """A Pod as the holder of one device."""

    gres: str
    """Name of the GRES, for example "gpu" or "shard"."""
    number: int
    """Slurm's number of the device."""
    monitored: Monitored
    pod: str
    """Namespace and name of the Pod."""
    job: int
    """Id of the job, or 0 if the id is unknown."""


def holders(
    claims: Iterable[Claim], machine: Machine, called: Mapping[Files, Names]
) -> Iterator[Holder]:
    """Yields a holder for each device of each Pod. Leaves out devices that this machine does not
    have."""
    for claim in claims:
        for gres, numbers in claim.devices.items():
            for number in numbers:
                try:
                    (part,) = machine.parts({gres: (number,)})
                except ValueError:  # the keeper reports the problem
                    continue
                names = called.get(frozenset(part.device.files), Names())
                yield Holder(gres, number, names.monitored, claim.pod, claim.job or 0)


def jobs_by_file(held: Iterable[Holder], called: Iterable[Names]) -> dict[str, set[int]]:
    """Returns the jobs of each known device by the name of the device's job file."""
    found = {each.monitored.job_file: set[int]() for each in called}
    for each in held:
        if each.job:
            found.setdefault(each.monitored.job_file, set()).add(each.job)
    found.pop(UNMONITORED.job_file, None)
    return found


class DeviceHolders:
    """Knows the holders of this Node's devices. If a folder is given, also keeps the job files for
    dcgm-exporter in this folder."""

    def __init__(self, keeper: Keeper, pods: NodePods, folder: Path | None) -> None:
        self._keeper, self._pods = keeper, pods
        self._files = JobFiles(folder) if folder is not None else None
        self._written: object = None
        """The jobs in the last write."""
        self._repair_at = 0.0

    def now(self) -> list[Holder]:
        """Returns the holders. Returns [] while the Pods or the devices are unknown. Also returns []
        while a job may have devices by old numbers, because slurmd has renumbered the devices since the
        job started."""
        claims, machine = self._pods.claims, self._keeper.machine
        if claims is None or machine is None or self._keeper.numbering.words:
            return []
        return [*holders(claims.values(), machine, self._keeper.names)]

    async def run(self, report: Report) -> None:
        """Keeps the job files up to date for ever. Without a folder, returns at once."""
        if self._files is not None:
            await periodically(self._keep, _LOOK_S, outlives=(OSError, ValueError), report=report)

    async def _keep(self) -> None:
        """Writes the job files after a change of the holders. Raises OSError and ValueError."""
        assert self._files is not None
        if self._pods.claims is None or self._keeper.machine is None:
            return  # nothing is known: each file keeps its jobs
        renumbered = bool(self._keeper.numbering.words)
        jobs = jobs_by_file(self.now(), () if renumbered else self._keeper.names.values())
        alive: Collection[int] = {claim.job for claim in self._pods.claims.values() if claim.job}
        now, wanted = time.monotonic(), (jobs, alive)
        if wanted != self._written or now >= self._repair_at:
            await asyncio.to_thread(self._files.write, jobs, alive)
            self._written, self._repair_at = wanted, now + _REPAIR_S
