"""Watches the claims of Pods: PersistentVolumeClaims with their volumes and classes, and ResourceClaims.

If kube-apiserver does not serve a kind of objects, or rejects a list or a watch, the extender tries
again each minute, and every 5 s during an outage. Until a list succeeds, the kind is unknown, and the
extender ignores this kind in decisions about Pods.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any

from extender.pod_request.devices.claims import (
    RESOURCE_CLAIM,
    VOLUME_CLAIM,
    Claims,
    Key,
    ResourceClaim,
    Volume,
    VolumeClaim,
    waits_for_consumer,
)
from kubernetes_client.errors import OUTAGE, KubernetesError
from kubernetes_client.protocol import Kubernetes, Manifest
from kubernetes_client.watch import Change, ResourceWatch
from service.health import Health

_AGAIN_S = 60.0
_SOON_S = 5.0  # in an outage
_BROKEN_S = 30.0  # time without an open watch after which a kind becomes unknown
_KINDS = {  # kind -> field of `Claims`
    "persistentvolumeclaims": "volume_claims",
    "persistentvolumes": "volumes",
    "storageclasses": "waits",
    "resourceclaims": "resource_claims",
}
PARTS = tuple(f"watch of {kind}" for kind in _KINDS)  # parts of the health report
Changed = Callable[[Iterable[Key] | None], Awaitable[object]]
"""Takes the changed claims; None if any claim may have changed. For each kind of objects, the next call
starts only after the end of the last call."""


class ClaimWatch:
    """Follows the claims. `claims` has the claims that are known now."""

    def __init__(self, kubernetes: Kubernetes, health: Health) -> None:
        self.claims = Claims()
        self._kubernetes, self._health = kubernetes, health
        self._watches = {
            kind: ResourceWatch(kubernetes, kind, None, partial(self._on_problem, kind))
            for kind in _KINDS
        }
        self._wrong = dict[str, KubernetesError | None]()
        """For each kind, the last error of a list or a watch."""
        self._broken = dict[str, asyncio.Timeout]()
        """For each watched kind, a deadline that passes after `_BROKEN_S` without an open watch."""

    async def load(self) -> None:
        """Lists all objects once, and `run` continues from these lists. A kind that cannot be listed
        stays unknown."""
        await asyncio.gather(*map(self._list, _KINDS))

    async def run(self, changed: Changed) -> None:
        """Follows all kinds for ever."""
        async with asyncio.TaskGroup() as tasks:
            for kind in _KINDS:
                tasks.create_task(self._follow(kind, changed))

    def _on_problem(self, kind: str, problem: KubernetesError | None) -> None:
        self._wrong[kind] = problem
        self._health.says(f"watch of {kind}", problem)
        broken = self._broken[kind]
        if problem is None:
            broken.reschedule(None)
        elif broken.when() is None:
            broken.reschedule(asyncio.get_running_loop().time() + _BROKEN_S)

    async def _follow(self, kind: str, changed: Changed) -> None:
        while True:
            while not self._is_known(kind):
                await asyncio.sleep(_SOON_S if self._health.parts().get(OUTAGE) else _AGAIN_S)
                await self._list(kind, if_watched=True)
                if self._is_known(kind):
                    await changed(None)
            await self._follow_known(kind, changed)
            self._keep(kind, None)
            problem = f"Pods' claims are not checked: there was no watch for {_BROKEN_S:.0f} s"
            self._health.says(f"watch of {kind}", problem, because=self._wrong[kind])
            await changed(None)

    async def _follow_known(self, kind: str, changed: Changed) -> None:
        """Follows the changes of a known kind. Returns after `_BROKEN_S` without an open watch."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_BROKEN_S) as self._broken[kind]:
                async for change in self._watches[kind].changes():
                    await changed(self._note(kind, change))

    def _is_known(self, kind: str) -> bool:
        return self._all(kind) is not None

    async def _list(self, kind: str, *, if_watched: bool = False) -> None:
        """Lists the objects of a kind. If `if_watched` is True, lists the objects only if a watch is
        possible. After an error, the kind stays unknown."""
        if self._is_known(kind):
            return
        try:
            if await self._kubernetes.serves(kind):
                if if_watched:
                    await self._watches[kind].try_watch()
                listed = await self._watches[kind].list_as(lambda manifest: _read(kind, manifest))
                self._keep(kind, dict(listed))
        except KubernetesError as error:
            self._wrong[kind] = error
            words = f"Pods' claims are not checked: {error}"
            self._health.says(f"watch of {kind}", words, because=error)
        else:
            self._wrong[kind] = None
            self._health.says(f"watch of {kind}", None)

    def _all(self, kind: str) -> dict[Any, Any] | None:
        known: dict[Any, Any] | None = getattr(self.claims, _KINDS[kind])
        return known

    def _keep(self, kind: str, known: dict[Any, Any] | None) -> None:
        setattr(self.claims, _KINDS[kind], known)

    def _note(self, kind: str, change: Change) -> Iterable[Key] | None:
        """Notes a changed object. Returns the claims that the change affects; None if any claim may be
        affected."""
        known = self._all(kind)
        assert known is not None  # else the kind is not followed
        name, after = _read(kind, change.manifest)
        before = known.pop(name, None)
        if not change.gone:
            known[name] = after
        if before == after and not change.gone:
            return ()
        match kind:
            case "persistentvolumes":
                return {each.claim for each in (before, after) if each is not None}
            case "storageclasses":
                return None
        return (name,)


def _read(kind: str, manifest: Manifest) -> tuple[Any, Any]:
    """Returns the key of an object, and the fields to keep."""
    metadata = manifest["metadata"]
    names = metadata.get("namespace") or "", metadata["name"]
    match kind:
        case "persistentvolumeclaims":
            return Key(VOLUME_CLAIM, *names), VolumeClaim.parse(manifest)
        case "persistentvolumes":
            return metadata["name"], Volume.parse(manifest)
        case "storageclasses":
            return metadata["name"], waits_for_consumer(manifest)
    return Key(RESOURCE_CLAIM, *names), ResourceClaim.parse(manifest)
