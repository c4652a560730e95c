"""The Slurm clusters of the contract tests for dynamic nodes: one static node, and slurmds that may
register.

Dynamic nodes have 8 CPUs, 16,000 MB and 4 GPUs of type h100. Slurm's power saving is on, but suspends no
node without an order.
"""

from deploy.local.spec import ClusterSpec
from slurm_client.errors import InvalidRequest
from slurm_client.in_memory import InMemorySlurm, node, partition
from slurm_client.model import Node, Power
from slurm_client.reservation import Reservation
from tests.eventually import until
from tests.slurm_client.bench import (
    ALONE,
    CPUS,
    GPUS,
    MEMORY_MB,
    SIZES,
    Bench,
    InMemoryBench,
    RealBench,
)

STATIC = "node-1"
DYNAMIC = ("dynamic-1", "dynamic-2")
PARTITION = FEATURE = "dynamic"
_GRES = f"gpu:h100:{GPUS}"
_CONF = (
    f"CPUs={CPUS} Sockets=1 CoresPerSocket={CPUS} ThreadsPerCore=1 RealMemory={MEMORY_MB} Gres={_GRES}"
)
_POWER_SAVING = (
    "SlurmctldParameters=conmgr_threads=2,enable_configless,power_save_interval=1",
    "SuspendProgram=/bin/true",
    "ResumeProgram=/bin/true",
    "SuspendTime=86400",
    "SuspendTimeout=3",
    "ResumeTimeout=60",
    "SlurmdTimeout=8",
)


def spec(release: str) -> ClusterSpec:
    return ClusterSpec(
        release=release,
        slurm_conf=_POWER_SAVING,
        nodes=1,
        dynamic_nodes=len(DYNAMIC),
        **SIZES,
        **ALONE,
    )


class PoolBench(Bench):
    """A bench with no dynamic nodes at the start of a test."""

    seconds_to_a_boot = 0
    """Seconds after the start of a job until slurmctld can surely recognise a reboot of the node."""

    async def start_slurmd(self, name: str, *features: str, booted: bool = False) -> None:
        """Starts a slurmd. The node also has the feature `dynamic`."""
        raise NotImplementedError

    async def stop_slurmd(self, name: str) -> None:
        raise NotImplementedError

    async def lose_slurmd(self, name: str) -> None:
        """Ends slurmd without notice. slurmctld notices the loss later."""
        raise NotImplementedError

    async def power_down(self, name: str) -> None:
        """Suspends the node by power saving, as an administrator does. Slurm powers the node down a
        moment later."""
        raise NotImplementedError

    async def has_powered_down(self, name: str) -> None:
        """Ends SuspendTimeout at once, if the bench controls the time."""

    async def power_up(self, name: str) -> None:
        """Starts a job on the node, so that Slurm powers the node up soon after."""
        raise NotImplementedError

    async def reservation(self, name: str) -> Reservation | None:
        return next((one for one in await self.slurm.reservations() if one.name == name), None)

    async def joined(self, name: str, *features: str) -> Node:
        """Starts a slurmd, and returns the node after the registration."""
        await self.start_slurmd(name, *features)

        async def there() -> bool:
            return await self.slurm.node(name) is not None

        await until(there, within_s=15)
        return await self.see(name)

    async def until_power(self, name: str, power: Power | None) -> Node:
        return await self.until_seen(name, lambda node: node.power is power)

    async def clear(self) -> None:
        for job_id, state in (await self.slurm.all_states()).items():
            if not state.ended:
                await self.slurm.cancel(job_id)
        for name in DYNAMIC:

            async def deleted(name: str = name) -> bool:
                try:
                    await self.slurm.delete_node(name)
                except InvalidRequest:  # Slurm still cleans up after a job on the node
                    return False
                return True

            await until(deleted, within_s=15)
            await self.stop_slurmd(name)


class InMemoryPool(PoolBench, InMemoryBench):
    def __init__(self) -> None:
        static = node(STATIC, cpus=CPUS, memory_mb=MEMORY_MB, gres=_GRES)
        partitions = [partition("main", [STATIC], default=True), partition(PARTITION, [])]
        self.controls = InMemorySlurm([static], partitions, tick_s=0.02)
        Bench.__init__(self, self.controls)

    async def start_slurmd(self, name: str, *features: str, booted: bool = False) -> None:
        has = (FEATURE, *features)
        of_pool = node(name, cpus=CPUS, memory_mb=MEMORY_MB, gres=_GRES, features=has, external=False)
        self.controls.register(of_pool, [PARTITION], booted=booted)

    async def stop_slurmd(self, name: str) -> None:
        """Does nothing, because slurmctld notices no loss at first."""

    async def lose_slurmd(self, name: str) -> None:
        self.controls.fail_node(name)

    async def power_down(self, name: str) -> None:
        self.controls.power(name, Power.POWERING_DOWN)

    async def has_powered_down(self, name: str) -> None:
        self.controls.power(name, Power.POWERED_DOWN)

    async def power_up(self, name: str) -> None:
        self.controls.power(name, Power.POWERING_UP)


class RealPool(PoolBench, RealBench):
    seconds_to_a_boot = 4

    async def start_slurmd(self, name: str, *features: str, booted: bool = False) -> None:
        conf = f"{_CONF} Feature={','.join((FEATURE, *features))}"
        self.cluster.register(name, conf, *(["-b"] if booted else []))

    async def stop_slurmd(self, name: str) -> None:
        if self.cluster.is_running(f"slurmd-{name}"):
            self.cluster.stop(f"slurmd-{name}")

    async def lose_slurmd(self, name: str) -> None:
        self.cluster.kill(f"slurmd-{name}")

    async def power_down(self, name: str) -> None:
        self.cluster.run_slurm("scontrol", "update", f"NodeName={name}", "State=POWER_DOWN")

    async def power_up(self, name: str) -> None:
        await self.submit(partition=PARTITION, required_nodes=(name,))
