"""The Slurm clusters of the contract tests: a real Slurm and a Slurm in memory, with the same two nodes
and three partitions.

Partition `main` is the default, `short` allows five minutes and two nodes, and `closed` is down. Both
nodes have 8 CPUs, 16,000 MB and 4 GPUs of type h100. Only node-1 has the feature "ib". With accounting,
ACCOUNTING defines the rights and limits of users.
"""

import itertools
import os
import re
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractContextManager as ContextManager
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from deploy.local import accounting as real
from deploy.local.cluster import Cluster
from deploy.local.spec import ClusterSpec
from deploy.local.users import JOB_USERS
from slurm_client.in_memory import Accounting, Association, InMemorySlurm, Limits, Qos, node, partition
from slurm_client.job_state import JobState
from slurm_client.model import Job, JobSpec, Node
from slurm_client.protocol import Slurm
from slurm_client.rest.client import SlurmRest
from tests.directory_away import directory_away
from tests.eventually import until

NODES = ("node-1", "node-2")
CPUS = 8
MEMORY_MB = 16_000
GPUS = 4
SIZES: dict[str, Any] = {"cpus_per_node": CPUS, "memory_mb": MEMORY_MB, "gpus_per_node": GPUS}
ALONE: dict[str, Any] = {"kubernetes": False, "extender": False, "kill_wait": 5}
"""Fields of a ClusterSpec for a Slurm without Kubernetes and without the extender."""
FEATURES = {"node-1": ("h100", "ib"), "node-2": ("h100",)}
EXTRA_CONF = (
    "PartitionName=short Nodes=node-[1-2] MaxTime=5 MaxNodes=2 State=UP",
    (
        "PartitionName=closed Nodes=node-[1-2] State=DOWN DefaultTime=3 SelectTypeParameters=CR_Core"
        " MinNodes=1 MaxCPUsPerNode=6 MaxMemPerNode=2000"
    ),
    # Seconds for which slurmrestd tries to reach a slurmctld that is down.
    "MessageTimeout=3",
)
# If the job's comment is "plugin says NUMBER", the plugin answers NUMBER to each submission or change of
# the job.
JOB_SUBMIT_LUA = """
local function answer(job)
    local number = string.match(job.comment or "", "^plugin says (%-?%d+)")
    if number == nil then return slurm.SUCCESS end
    slurm.log_user("the plugin says %s", number)
    return tonumber(number)
end
function slurm_job_submit(job, partitions, uid) return answer(job) end
function slurm_job_modify(job, record, partitions, uid) return answer(job) end
return slurm.SUCCESS
"""
ALICE, BOB, NOBODY = JOB_USERS["alice"], JOB_USERS["bob"], 2005
# The names of the QOS say the limit, or the user. "small" limits a job to two CPUs.
ACCOUNTING = Accounting(
    qos=(
        Qos("one-runs", Limits(max_jobs=1)),
        Qos("one-runs-of-all", Limits(group_jobs=1)),
        Qos("one-submitted", Limits(max_submit_jobs=1)),
        Qos("small", Limits(max_cpus_per_job=2)),
        Qos("small-or-denied", Limits(max_cpus_per_job=2), deny_on_limit=True),
        Qos("bobs"),
    ),
    associations=(
        Association(0, "root", qos=("normal", "one-runs", "one-submitted", "small")),
        Association(
            ALICE,
            "ml",
            qos=("normal", "one-runs", "one-runs-of-all", "one-submitted", "small", "small-or-denied"),
        ),
        Association(ALICE, "lab", limits=Limits(max_jobs=1)),
        Association(BOB, "web", qos=("bobs", "normal", "one-runs", "one-runs-of-all")),
    ),
)

# Job ids of placeholders, far above the ids that Slurm assigns itself. A run of the tests uses no id
# twice.
_ids = itertools.count(30_000_000 + int(time.time()) % 1_000_000 * 10)


Names = Sequence[str]


@dataclass
class Bench:
    """A Slurm, with a source of new job ids, and with functions that wait for slow changes in Slurm."""

    slurm: Slurm
    ids: Iterator[int] = field(default_factory=lambda: _ids)

    async def drain(self, name: str) -> None:
        raise NotImplementedError

    def set_features(self, name: str, features: Sequence[str]) -> None:
        """Sets a node's features, as an administrator does."""
        raise NotImplementedError

    def directory_away(self, *users: str) -> ContextManager[None]:
        """Prevents slurmctld from resolving the users until the block ends."""
        raise NotImplementedError

    async def resume(self, name: str) -> None:
        raise NotImplementedError

    async def fail(self, name: str) -> None:
        """Sets the node DOWN."""
        raise NotImplementedError

    def reserved(
        self, name: str, nodes: Names, users: Names, in_hours: int = 0, flags: Names = ()
    ) -> ContextManager[None]:
        """Creates a reservation of one hour, and deletes the reservation at the end of the block, unless
        Slurm deletes the reservation first. ("ALL",) means all nodes."""
        raise NotImplementedError

    async def edit(self, job_id: int, *, name: bytes, comment: bytes) -> None:
        """Changes the job's name and comment, as the job's owner does."""
        raise NotImplementedError

    async def suspend_job(self, job_id: int) -> None:
        """Runs `scontrol suspend`."""
        raise NotImplementedError

    async def resume_job(self, job_id: int) -> None:
        """Runs `scontrol resume`."""
        raise NotImplementedError

    async def hold_job(self, job_id: int) -> None:
        """Runs `scontrol uhold`, as the owner of the job does."""
        raise NotImplementedError

    async def release_job(self, job_id: int) -> None:
        """Runs `scontrol release`."""
        raise NotImplementedError

    async def allocate(self, **wanted: Any) -> Job:
        return await self.read(await self.slurm.allocate(spec(**wanted), next(self.ids)))

    async def submit(self, **wanted: Any) -> int:
        return await self.slurm.submit(spec(**wanted), next(self.ids))

    async def fill(self) -> list[int]:
        """Allocates all GPUs to jobs, and returns the jobs' ids."""
        return [(await self.allocate(gres=(("gpu", GPUS),))).id for _ in NODES]

    async def read(self, job_id: int) -> Job:
        job = await self.slurm.job(job_id)
        assert job is not None
        return job

    async def see(self, name: str) -> Node:
        """Returns a node from the list of all nodes."""
        (found,) = [one for one in await self.slurm.nodes() if one.name == name]
        return found

    async def until_seen(self, name: str, holds: Callable[[Node], object], within_s: float = 15) -> Node:
        async def so() -> bool:
            return bool(holds(await self.see(name)))

        await until(so, within_s=within_s)
        return await self.see(name)

    async def state(self, job_id: int) -> JobState:
        return (await self.slurm.states([job_id]))[job_id]

    async def until_running(self, job_id: int) -> Job:
        async def running() -> bool:
            return (await self.state(job_id)).running

        await until(running, within_s=15)
        return await self.read(job_id)

    async def until_waiting_for(self, job_id: int, *reasons: str) -> None:
        async def said() -> bool:
            return (await self.read(job_id)).reason in reasons

        await until(said, within_s=15)

    async def clear(self) -> None:
        """Cancels all jobs, and waits until every node is idle."""
        states = await self.slurm.all_states()
        for job_id in [job_id for job_id, state in states.items() if not state.ended]:
            await self.slurm.cancel(job_id)

        async def idle() -> bool:
            nodes = await self.slurm.nodes()
            # In the state IDLE+COMPLETING, the last processes of a batch job still hold the job's
            # resources.
            return all(one.states == {"IDLE"} for one in nodes)

        await until(idle, within_s=15)


class InMemoryBench(Bench):
    """A bench with a Slurm in memory. The scheduler of this Slurm runs often, so that the tests wait
    only briefly for a decision."""

    def __init__(self, *, external_jobs: bool = True, accounting: Accounting | None = None) -> None:
        self.controls = InMemorySlurm(
            [
                node(name, cpus=CPUS, memory_mb=MEMORY_MB, gres=f"gpu:h100:{GPUS}", features=has)
                for name, has in FEATURES.items()
            ],
            [
                partition("main", NODES, default=True),
                partition("short", NODES, max_time_minutes=5, max_nodes=2),
                partition(
                    "closed",
                    NODES,
                    up=False,
                    default_time_minutes=3,
                    min_nodes=1,
                    max_cpus_per_node=6,
                    max_memory_mb=2000,
                    select_type_parameters=("CR_CORE",),
                ),
            ],
            tick_s=0.02,
            external_jobs=external_jobs,
            accounting=accounting,
        )
        self.controls.ask_plugin(_plugin)
        self.controls.forget_user(NOBODY)
        for name, user_id in JOB_USERS.items():
            self.controls.name_user(user_id, name)
        super().__init__(self.controls)

    async def drain(self, name: str) -> None:
        self.controls.drain(name)

    def set_features(self, name: str, features: Sequence[str]) -> None:
        self.controls.set_features(name, features)

    @contextmanager
    def directory_away(self, *users: str) -> Iterator[None]:
        for user in users:
            self.controls.forget_user(JOB_USERS[user])
        yield
        for user in users:
            self.controls.remember_user(JOB_USERS[user])

    async def resume(self, name: str) -> None:
        self.controls.resume_node(name)

    async def fail(self, name: str) -> None:
        self.controls.fail_node(name)

    async def edit(self, job_id: int, *, name: bytes, comment: bytes) -> None:
        self.controls.edit(job_id, name=name, comment=comment)

    async def suspend_job(self, job_id: int) -> None:
        self.controls.suspend(job_id)

    async def resume_job(self, job_id: int) -> None:
        self.controls.resume(job_id)

    async def hold_job(self, job_id: int) -> None:
        self.controls.hold(job_id)

    async def release_job(self, job_id: int) -> None:
        self.controls.release(job_id)

    @contextmanager
    def reserved(
        self, name: str, nodes: Names, users: Names, in_hours: int = 0, flags: Names = ()
    ) -> Iterator[None]:
        whole = [*flags, "ALL_NODES"] if "ALL" in nodes else flags
        who = [JOB_USERS.get(user, 0) for user in users]
        self.controls.reserve(name, nodes, who, begins_in_s=3600.0 * in_hours, flags=whole)
        yield
        self.controls.end_reservation(name)


class RealBench(Bench):
    """A bench with slurmctld, slurmrestd and two slurmds on this machine."""

    def __init__(self, slurm: Slurm, cluster: Cluster) -> None:
        super().__init__(slurm)
        self.cluster = cluster

    async def drain(self, name: str) -> None:
        self._scontrol("update", f"NodeName={name}", "State=DRAIN", "Reason=test")

    def set_features(self, name: str, features: Sequence[str]) -> None:
        text = ",".join(features)
        changes = f"AvailableFeatures={text}", f"ActiveFeatures={text}"
        self._scontrol("update", f"NodeName={name}", *changes)

    def directory_away(self, *users: str) -> ContextManager[None]:
        return directory_away(self.cluster, users)

    async def resume(self, name: str) -> None:
        self._scontrol("update", f"NodeName={name}", "State=RESUME")

    async def fail(self, name: str) -> None:
        self._scontrol("update", f"NodeName={name}", "State=DOWN", "Reason=failed")

    async def edit(self, job_id: int, *, name: bytes, comment: bytes) -> None:
        texts = f"JobName={os.fsdecode(name)}", f"Comment={os.fsdecode(comment)}"
        self._scontrol("update", f"JobId={job_id}", *texts)

    async def suspend_job(self, job_id: int) -> None:
        self._scontrol("suspend", str(job_id))

    async def resume_job(self, job_id: int) -> None:
        self._scontrol("resume", str(job_id))

    async def hold_job(self, job_id: int) -> None:
        self._scontrol("uhold", str(job_id))

    async def release_job(self, job_id: int) -> None:
        self._scontrol("release", str(job_id))

    def reserved(
        self, name: str, nodes: Names, users: Names, in_hours: int = 0, flags: Names = ()
    ) -> ContextManager[None]:
        start = f"now+{in_hours}hours" if in_hours else "now"
        reservation = real.Reservation(
            name, nodes=tuple(nodes), users=tuple(users), start=start, flags=tuple(flags)
        )
        return real.reserved(self.cluster, reservation)

    def _scontrol(self, *arguments: str) -> None:
        self.cluster.run_slurm("scontrol", *arguments)


def _plugin(job: JobSpec) -> int:
    """Gives the same answer as JOB_SUBMIT_LUA."""
    said = re.match(r"plugin says (-?\d+)", job.comment or "")
    return int(said[1]) if said else 0


@asynccontextmanager
async def slurm_of(spec: ClusterSpec) -> AsyncIterator[SlurmRest]:
    """Starts a real Slurm for one test, and yields a client of this Slurm."""
    with (
        tempfile.TemporaryDirectory(prefix="slurm-") as directory,
        Cluster.up(spec, Path(directory)) as cluster,
    ):
        slurm = SlurmRest(cluster.slurmrestd_url, cluster.token_file)
        await slurm.connect()
        yield slurm
        await slurm.aclose()


def declare(cluster: Cluster, accounting: Accounting) -> None:
    """Declares the same accounting in a real cluster."""
    names = {uid: name for name, uid in JOB_USERS.items()}
    real.declare(
        cluster,
        *(
            real.Qos(one.name, ("DenyOnLimit",) if one.deny_on_limit else (), limits=_real(one.limits))
            for one in accounting.qos
        ),
        *(real.Account(one.account) for one in accounting.associations),
        *(
            real.User(names[one.user_id], (one.account,), one.qos, limits=_real(one.limits))
            for one in accounting.associations
        ),
    )


def _real(limits: Limits) -> real.Limits:
    return real.Limits(
        group_jobs=limits.group_jobs,
        max_jobs=limits.max_jobs,
        max_submit_jobs=limits.max_submit_jobs,
        max_tres_per_job=None if limits.max_cpus_per_job is None else f"cpu={limits.max_cpus_per_job}",
    )


def spec(**wanted: Any) -> JobSpec:
    """Returns the description of a small job, with the given changes."""
    return replace(JobSpec("contract", cpus=1, memory_mb=100), **wanted)
