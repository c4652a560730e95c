"""Slurm as its administrator and its users see it: squeue, scontrol, sbatch, scancel."""

import asyncio
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from deploy.local.cluster import Cluster
from deploy.local.errors import NotObserved

Result = TypeVar("Result")

_POLL_S: Final = 0.1
_FIELDS: Final = "%i|%j|%T|%N|%r"


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """A line of squeue. `node` is a hostlist, empty while the job is pending."""

    id: int
    name: str
    state: str
    node: str
    reason: str


Queue = Mapping[int, QueuedJob]


@dataclass(frozen=True, slots=True)
class NodeUse:
    """The allocated part of a node, and the node's size."""

    name: str
    cpus: int
    cpus_used: int
    gpus: int
    gpus_used: int


def parse_queue(listed: str) -> Queue:
    """Parses the output of `squeue -h -o FIELDS`."""
    split = (line.split("|") for line in listed.splitlines())
    jobs = (QueuedJob(int(parts[0]), *parts[1:]) for parts in split)
    return {job.id: job for job in jobs}


def parse_nodes(listed: str) -> list[NodeUse]:
    """Parses the output of `scontrol show node --json`."""
    nodes: list[Mapping[str, Any]] = json.loads(listed)["nodes"]
    return [
        NodeUse(
            node["name"], node["cpus"], node["alloc_cpus"], _gpus(node["gres"]), _gpus(node["gres_used"])
        )
        for node in nodes
    ]


def _gpus(gres: str) -> int:
    """Returns the number of GPUs in a GRES text such as "gpu:h100:4,nic:2" or "gpu:h100:1(IDX:0)"."""
    return sum(int(count) for count in re.findall(r"\bgpu:(?:[^:,(]+:)?(\d+)", gres))


class Slurm:
    """Slurm's client programs. Calls run in threads beside the event loop."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def queue(self) -> Queue:
        """Returns every job that squeue lists: pending, running or completing."""
        return parse_queue(await self._run("squeue", "-h", "-o", _FIELDS))

    async def nodes(self) -> list[NodeUse]:
        return parse_nodes(await self._run("scontrol", "show", "node", "--json"))

    async def final_state(self, job_id: int) -> str:
        """Returns the state of a job in scontrol, even if squeue no longer lists the job."""
        shown = await self._run("scontrol", "-o", "show", "job", str(job_id))
        found = re.search(r"\bJobState=(\S+)", shown)
        return found[1] if found else shown

    async def cancel(self, job_id: int) -> None:
        await self._run("scancel", str(job_id))

    async def submit(self, script: str, *options: str, user: str) -> int:
        """Submits a batch job as the user, and returns the job's id."""
        return int(await self._run("sbatch", "--parsable", *options, user=user, stdin=script))

    async def until(
        self, see: Callable[[Queue], Result | None], what: str, within_s: float = 20.0
    ) -> Result:
        """Calls `see` with squeue's list again and again, and returns the first true result. Raises
        NotObserved after the timeout."""
        try:
            async with asyncio.timeout(within_s):
                while not (seen := see(await self.queue())):  # noqa: ASYNC110 -- squeue sends no events
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            raise NotObserved(f"{what}: not within {within_s:.0f} s") from None
        return seen

    async def _run(
        self, program: str, *arguments: str, user: str = "root", stdin: str | None = None
    ) -> str:
        run = self._cluster.run_slurm
        done = await asyncio.to_thread(run, program, *arguments, user=user, stdin=stdin)
        return done.stdout
