"""Lists and watches all objects of a kind, so that a reader misses no change.

This module handles outages, closed and half-open connections, bookmarks and expired versions (410). A
reader sees the versions of each object in order. After a gap, the reader sees every object again, and
learns about the objects that are gone.

A watch without any events may be sound, because kube-apiserver sends bookmarks only for resources in the
watch cache. So after a silence, this module checks the server's version, and opens another watch from
the same version. The cache never has Events, nor resources that `--watch-cache-sizes` or
`--watch-cache=false` excludes.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from sys import intern
from typing import Any, TypeVar

import orjson
import structlog

from kubernetes_client.errors import Expired, KubernetesError, Unavailable, error_of
from kubernetes_client.protocol import Kubernetes, Manifest
from service.cooperative import Turn, yielding
from wellknown.pauses import Pauses
from wellknown.quoting import words_of

_WATCH_S = 290
_TRIAL_S = 1
_SILENCE_S = 100.0  # bookmarks, if the resource has any, come about once a minute
_LOOKS_S = 1.0  # the end of a silence is measured with at most this error
_PAUSES = Pauses(0.1, 5.0)

Item = TypeVar("Item")
_Names = tuple[str, str]
"""Namespace ("" without a namespace) and name."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Change:
    """The new version of an object, or the last version of an object that is `gone`. `seen` is False if
    no watch reported the deletion, and the object is only missing in a new list."""

    manifest: Manifest
    gone: bool = False
    seen: bool = True


class ResourceWatch:
    """Follows all objects of a kind ("pods", "nodes") that a field selector selects. `on_problem` is
    called with the error when the watch fails, and with None when it works."""

    def __init__(
        self,
        api: Kubernetes,
        kind: str,
        field_selector: str | None = None,
        on_problem: Callable[[KubernetesError | None], object] = lambda _: None,
    ) -> None:
        self._api = api
        self._kind = kind
        self._selector = field_selector
        self._on_problem = on_problem
        self._version = ""
        self._known: dict[str, _Names] = {}

    async def list(self) -> tuple[Manifest, ...]:
        """Lists all objects. `changes` continues from this list. Raises KubernetesError."""
        return await self.list_as(lambda manifest: manifest)

    async def list_as(self, read: Callable[[Manifest], Item]) -> tuple[Item, ...]:
        """Lists all objects, and returns only the results of `read`, because 10,000 manifests take 200
        MB."""
        items, known = list[Item](), dict[str, _Names]()
        async for manifest in self._listed():
            known[manifest["metadata"]["uid"]] = _names(manifest)
            items.append(read(manifest))
        self._known = known
        return tuple(items)

    async def try_watch(self) -> None:
        """Opens and closes a watch. Raises KubernetesError if the server rejects the watch, but not for
        an expired version, because a list follows anyway."""
        with suppress(Expired):
            async with self._api.watch(self._kind, self._selector, self._version, _TRIAL_S):
                pass

    async def changes(self) -> AsyncIterator[Change]:
        """Yields changes for ever, after a `list`."""
        failures = expiries = 0
        expired = False
        while True:
            try:
                if expired:
                    async for change in self._list_again():
                        yield change
                    expired = False
                else:
                    async for change in self._one_watch():
                        expiries = 0
                        yield change
                    expiries = 0
                failures = 0
            except Expired:
                log.info("watch expired, listing again", kind=self._kind)
                expired = True
                expiries += 1  # counts, because a broken server may expire every watch
                failures = expiries
            except (KubernetesError, orjson.JSONDecodeError, TimeoutError, OSError) as error:
                self._on_problem(_as_ours(error))
                failures += 1
            # Pauses even after a success. Otherwise, a server that ends each watch at once would get
            # calls without a pause.
            await asyncio.sleep(_PAUSES.after(failures))

    async def _list_again(self) -> AsyncIterator[Change]:
        """Lists all objects again, and yields each object as it comes, so that only one page of
        manifests is in memory. Yields a missing object after the complete list, or before a new object
        with the same name. A list that breaks off may be repeated."""
        listed, holders = set[str](), {names: uid for uid, names in self._known.items()}
        async for manifest in self._listed():
            uid, names = manifest["metadata"]["uid"], _names(manifest)
            listed.add(uid)
            before = holders.get(names, uid)
            if before != uid and before in self._known:
                yield self._gone(before)
            self._known[uid] = names
            yield Change(manifest)
        for uid in self._known.keys() - listed:
            yield self._gone(uid)

    def _gone(self, uid: str) -> Change:
        namespace, name = self._known.pop(uid)
        metadata = {"uid": uid, "name": name} | ({"namespace": namespace} if namespace else {})
        return Change({"metadata": metadata}, gone=True, seen=False)

    async def _listed(self) -> AsyncIterator[Manifest]:
        """Yields all objects, and gives other work turns. The watch continues only from a complete list;
        a list that breaks off changes nothing."""
        version = ""
        async for page in self._api.pages(self._kind, self._selector):
            async for manifest in yielding(page.get("items") or ()):
                yield manifest
            version = page["metadata"]["resourceVersion"]
        self._version = version

    async def _one_watch(self) -> AsyncIterator[Change]:
        watch = self._api.watch(self._kind, self._selector, self._version, _WATCH_S)
        silence = asyncio.timeout(_SILENCE_S)
        try:
            async with watch as pieces, silence:
                self._on_problem(None)
                rest, clock, looked = b"", asyncio.get_running_loop().time, 0.0
                async for piece in pieces:
                    turn = Turn()
                    if (now := clock()) > looked + _LOOKS_S:
                        silence.reschedule(now + _SILENCE_S)
                        looked = now
                    *lines, rest = (rest + piece).split(b"\n")
                    for change in self._read(lines):
                        yield change
                        if turn.is_over:
                            await turn.next()
        except TimeoutError:
            if not silence.expired():
                raise
            await self._check_version()

    async def _check_version(self) -> None:
        """Returns if kube-apiserver has reached the version of the watch. Then another watch from the
        same version misses no change.

        Raises Expired if kube-apiserver is behind the version of the watch. This happens after a restore
        from a backup. A watch would then report no change until kube-apiserver has passed the version.
        Also raises Expired for a version that is no number, because such versions cannot be compared.
        """
        version = await self._api.latest_version(self._kind)
        try:
            is_behind = int(version) < int(self._version)
        except ValueError as error:
            raise Expired(410, f"a version of kube-apiserver is no number: {error}") from error
        if is_behind:
            words = f"the data of kube-apiserver went back from version {self._version} to {version}"
            self._on_problem(Unavailable(0, words))
            raise Expired(410, words)

    def _read(self, lines: Iterable[bytes]) -> Iterable[Change]:
        for line in lines:
            event: dict[str, Any] = orjson.loads(line)
            kind, item = event["type"], event["object"]
            if kind == "ERROR":
                raise _watch_error(item)
            self._version = item["metadata"]["resourceVersion"]
            if kind == "BOOKMARK":
                continue
            gone = kind == "DELETED"
            uid = item["metadata"]["uid"]
            if gone:
                self._known.pop(uid, None)
            else:
                self._known[uid] = _names(item)
            yield Change(item, gone)


def _watch_error(status: Manifest) -> KubernetesError:
    code, message = int(status.get("code") or 0), str(status.get("message") or "watch failed")
    return error_of(code, message) if code else KubernetesError(code, message)


def _as_ours(error: Exception) -> KubernetesError:
    """Returns a KubernetesError for an error that breaks a watch off, or for unreadable events."""
    if isinstance(error, KubernetesError):
        return error
    return Unavailable(0, f"kube-apiserver broke off the watch: {words_of(error)}")


def _names(manifest: Manifest) -> _Names:
    """Returns the names of an object. The names are kept instead of the manifest."""
    metadata = manifest["metadata"]
    return intern(metadata.get("namespace") or ""), metadata["name"]
