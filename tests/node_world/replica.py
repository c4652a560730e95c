"""A replica of the extender over both systems in memory, from the start to the end of the replica."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

from extender.app import Extender
from extender.bind.binder import Binder
from extender.bind.node_reservation import NodeReservation
from extender.leader.replica import Replica
from extender.policy.current import CurrentPolicy
from extender.settings import Settings
from kubernetes_client.in_memory import InMemoryKubernetes
from slurm_client.in_memory import InMemorySlurm
from wellknown.names import LEASE

NAMESPACE = "slurm-extender"


def settings_of(name: str) -> Settings:
    return Settings(
        replica=name,
        slurm_token_file=Path("token"),
        policy="open",
        shared_gpus="allow",
        poll_interval_s=1.0,
        namespace=NAMESPACE,
    )


class RunningReplica:
    """A running replica. The constructor starts the replica."""

    def __init__(self, name: str, kubernetes: InMemoryKubernetes, slurm: InMemorySlurm) -> None:
        self.name = name
        self._kubernetes = kubernetes
        settings = settings_of(name)
        policy = CurrentPolicy(settings.policy_file, settings.policy or "restricted")
        own = Replica(settings, kubernetes, slurm, policy)
        extender = Extender(own)
        self.leader = extender.leader
        translation = settings.translation
        reservation = NodeReservation(
            *(own.kubernetes, own.slurm, translation, own.capacity),
            *(self.leader.overlaps, self.leader.lingering),
        )
        systems = own.kubernetes, own.slurm, translation, own.view, reservation, self.leader.ledger
        self.binder = Binder(*systems, ids=settings.placeholder_ids, report=self.leader.report)
        self._runs = asyncio.ensure_future(extender.run())

    @property
    def leads(self) -> bool:
        return self.leader.ledger() is not None

    async def stop(self) -> None:
        """Ends the replica as after SIGTERM: the replica gives the Lease back."""
        self._runs.cancel()
        with suppress(asyncio.CancelledError):
            await self._runs

    async def kill(self) -> None:
        """Ends the replica as after `kill -9`: another replica leads after the Lease has expired."""
        led = self.leads
        await self.stop()
        lease = self._kubernetes.read("leases", LEASE, NAMESPACE)
        if led and not lease["spec"]["holderIdentity"]:
            self._kubernetes.edit("leases", LEASE, {"spec": {"holderIdentity": self.name}}, NAMESPACE)
