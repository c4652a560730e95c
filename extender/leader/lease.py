"""Elects the leader with a coordination.k8s.io Lease. The leader renews the Lease.

Every replica answers the calls of kube-scheduler and of kube-apiserver; the leader also places Pods. The
election saves work, but safety does not depend on the election. Two leaders do no harm, because the
extender itself chooses the job ids, and because each Binding names the Pod's resourceVersion (invariants
I1 and I2 in docs/design/architecture.md). So an outage of kube-apiserver does not end a leadership. A
leader that cannot renew the Lease pauses its effects on Slurm and Kubernetes. The leader stops only
after another replica holds the Lease. Each replica measures on its own clock how long the Lease has not
changed. So the clocks of replicas are never compared."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from math import inf
from typing import Any

import structlog

from kubernetes_client.errors import Conflict, KubernetesError, Unavailable
from kubernetes_client.protocol import Kubernetes
from service.health import Health
from wellknown.names import LEASE

_TURNS = 5  # number of checks of the Lease during leaseDurationSeconds
_RELEASE_S = 1.0

log = structlog.get_logger()


class Lease:
    """One replica's view of the Lease. A holder that restarts under the same name leads again at
    once."""

    def __init__(
        self, kubernetes: Kubernetes, namespace: str, identity: str, duration_s: int, health: Health
    ) -> None:
        self._kubernetes = kubernetes
        self._namespace = namespace
        self._identity = identity
        self._duration = duration_s
        self._health = health
        self._seen: tuple[str, float] = ("", -inf)
        """The newest version of the Lease, and the time at which this replica first saw the version."""
        self._held_until = -inf
        self._renewed = asyncio.Event()
        self._leading: asyncio.Future[None] | None = None
        self.transitions: int | None = None
        """Number of times that the holder has changed, as the newest version of the Lease reports."""

    async def lead(self, work: Callable[[], Awaitable[None]], stand_by: Callable[[], None]) -> None:
        """Runs `work` while this replica leads. If another replica leads, cancels `work`, and calls
        `stand_by` at each check of the Lease. Raises the errors of `work`. At the end, for example after
        a cancellation, gives the Lease back."""
        try:
            while True:
                holds = await self._hold()
                if holds and self._leading is None:
                    log.info("this replica leads", replica=self._identity)
                    self._leading = asyncio.ensure_future(work())
                elif holds is False and self._leading is not None:
                    log.warning("another replica leads: this one stops", replica=self._identity)
                    await self._stop()
                if holds is False:
                    stand_by()
                await self._pause()
        finally:
            await self._stop()
            await self._release()

    @property
    def is_held(self) -> bool:
        """True if this replica may act as the leader now."""
        return _now() < self._held_until

    async def held(self) -> None:
        """Waits until this replica may act as the leader."""
        while not self.is_held:
            self._renewed.clear()
            await self._renewed.wait()

    async def _pause(self) -> None:
        pause = self._duration / _TURNS
        if self._leading is None:
            await asyncio.sleep(pause)
            return
        done, _ = await asyncio.wait([self._leading], timeout=pause)
        for part in done:
            part.result()

    async def _stop(self) -> None:
        """Cancels the work. Errors during the cancellation are only logged."""
        work, self._leading = self._leading, None
        if work is None:
            return
        work.cancel()
        (result,) = await asyncio.gather(work, return_exceptions=True)
        if isinstance(result, Exception):
            log.error("error at the end of leadership", exc_info=result)

    async def _hold(self) -> bool | None:
        """Takes or renews the Lease. Returns True if this replica holds the Lease, False if another
        replica holds the Lease, and None if the holder is not known."""
        asked = _now()
        try:
            async with asyncio.timeout(self._duration / 2):
                holds = await self._take()
        except Conflict:  # another replica wrote the Lease at the same moment
            return None
        except KubernetesError as error:
            self._health.says("Lease", error)
            return None
        except TimeoutError:
            self._health.says("Lease", Unavailable(0, "kube-apiserver does not answer in time"))
            return None
        self._health.says("Lease", None)
        if holds:
            self._held_until = asked + self._duration
            self._renewed.set()
        return holds

    async def _take(self) -> bool:
        lease = await self._kubernetes.read_lease(self._namespace, LEASE)
        if lease is None:
            await self._kubernetes.create_lease(self._namespace, self._manifest({}))
            return True
        self._note(lease)
        version = str(lease["metadata"]["resourceVersion"])
        if version != self._seen[0]:
            self._seen = (version, _now())  # the version was written before this read
        if not self._may_take(lease.get("spec") or {}, _now()):
            return False
        written = await self._kubernetes.replace_lease(self._namespace, LEASE, self._manifest(lease))
        self._seen = (str(written["metadata"]["resourceVersion"]), _now())
        self._note(written)
        return True

    def _note(self, lease: Mapping[str, Any]) -> None:
        self.transitions = (lease.get("spec") or {}).get("leaseTransitions") or 0

    def _may_take(self, spec: Mapping[str, Any], now: float) -> bool:
        """Returns True if this replica may take the Lease. A leader that has lost the Lease may not
        take the Lease back, because its ledger is out of date."""
        holder = spec.get("holderIdentity") or ""
        if self._leading is not None:
            return bool(holder == self._identity)
        lasts = float(spec.get("leaseDurationSeconds") or self._duration)
        return holder in ("", self._identity) or now - self._seen[1] >= lasts

    async def _release(self) -> None:
        """Gives the Lease back, so that the next leader need not wait."""
        if not self.is_held:
            return
        self._held_until = -inf
        with suppress(KubernetesError, TimeoutError):
            async with asyncio.timeout(_RELEASE_S):
                lease = await self._kubernetes.read_lease(self._namespace, LEASE)
                if lease is not None and lease["spec"].get("holderIdentity") == self._identity:
                    empty = self._manifest(lease, holder="")
                    await self._kubernetes.replace_lease(self._namespace, LEASE, empty)

    def _manifest(self, before: Mapping[str, Any], holder: str | None = None) -> dict[str, Any]:
        """Returns the Lease that replaces the version `before`. `holder` is the new holder: by default
        this replica, "" for no holder."""
        spec, now = before.get("spec") or {}, _timestamp()
        holder = self._identity if holder is None else holder
        same = spec.get("holderIdentity") == holder
        changed = bool(before and holder and not same)
        metadata: dict[str, Any] = {"name": LEASE, "namespace": self._namespace}
        if before:
            metadata["annotations"] = before["metadata"].get("annotations") or {}
            metadata["resourceVersion"] = before["metadata"]["resourceVersion"]
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": metadata,
            "spec": {
                "holderIdentity": holder,
                "leaseDurationSeconds": self._duration,
                "acquireTime": spec.get("acquireTime", now) if same else now,
                "renewTime": now,
                "leaseTransitions": (spec.get("leaseTransitions") or 0) + changed,
            },
        }


def _now() -> float:
    return asyncio.get_running_loop().time()


def _timestamp() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
