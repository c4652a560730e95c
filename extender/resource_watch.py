"""A complete list and watch of one kind: what is, what changes, what is gone, without end.

Outages, closed and half-open connections, bookmarks and expired versions (410) are dealt with here; who
reads the changes sees each object's versions in order, and after a gap every object once more and the
disappearance of those that went meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeVar

import orjson
import structlog

from extender.kubernetes_api import Expired, KubernetesApi, KubernetesError, Manifest

_WATCH_S = 290
_SILENCE_S = 100.0  # bookmarks come about once a minute: longer silence is a dead connection
_BACKOFF_S = (0.1, 5.0)

Item = TypeVar("Item")

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Change:
    """One object's new version, or (`gone`) its last. That it went was `seen`, or else a new list of all
    objects lacks it."""

    manifest: Manifest
    gone: bool = False
    seen: bool = True


class ResourceWatch:
    """Follows all objects of a kind ("pods", "nodes") that a field selector selects. `on_trouble` is
    told what is wrong with the watch, and None when it works."""

    def __init__(
        self,
        api: KubernetesApi,
        kind: str,
        field_selector: str | None = None,
        on_trouble: Callable[[str | None], object] = lambda _: None,
    ) -> None:
        self._api = api
        self._kind = kind
        self._selector = field_selector
        self._on_trouble = on_trouble
        self._version = ""
        self._known: dict[str, Manifest] = {}

    async def list(self) -> tuple[Manifest, ...]:
        """Lists all objects; `changes` goes on from there. Raises KubernetesError."""
        return await self.list_as(lambda manifest: manifest)

    async def list_as(self, read: Callable[[Manifest], Item]) -> tuple[Item, ...]:
        """The same, as what `read` makes of each object: 10,000 manifests at once are 200 MB."""
        items, known = list[Item](), dict[str, Manifest]()
        async for page in self._api.pages(self._kind, self._selector):
            for manifest in page.get("items") or ():
                known[manifest["metadata"]["uid"]] = _stub(manifest)
                items.append(read(manifest))
            self._version = page["metadata"]["resourceVersion"]
        self._known = known
        return tuple(items)

    async def changes(self) -> AsyncIterator[Change]:
        """Yields changes for ever, after a `list`."""
        delay = _BACKOFF_S[0]
        while True:
            try:
                async for change in self._one_watch():
                    delay = _BACKOFF_S[0]
                    yield change
            except Expired:
                log.info("watch expired, listing again", kind=self._kind)
                for change in await self._list_again():
                    yield change
                delay = min(delay * 2, _BACKOFF_S[1])
            except (KubernetesError, orjson.JSONDecodeError, TimeoutError, OSError) as error:
                self._say(str(error) or type(error).__name__)
                delay = min(delay * 2, _BACKOFF_S[1])
            await asyncio.sleep(delay)  # whoever ends watches at once is not to be rushed

    async def _list_again(self) -> Iterable[Change]:
        """Who is gone is told first: another may have taken the name."""
        before, items = self._known, await self._list_until_answered()
        gone = (Change(before[uid], gone=True, seen=False) for uid in before.keys() - self._known)
        return chain(gone, (Change(item) for item in items))

    async def _list_until_answered(self) -> tuple[Manifest, ...]:
        while True:
            try:
                return await self.list()
            except KubernetesError as error:
                self._say(str(error))
                await asyncio.sleep(_BACKOFF_S[1])

    def _say(self, trouble: str) -> None:
        log.warning("watch broke off", kind=self._kind, error=trouble)
        self._on_trouble(trouble)

    async def _one_watch(self) -> AsyncIterator[Change]:
        watch = self._api.watch(self._kind, self._selector, self._version, _WATCH_S)
        heard, silence = False, asyncio.timeout(_SILENCE_S)
        try:
            async with watch as pieces, silence:
                self._on_trouble(None)
                rest = b""
                async for piece in pieces:
                    heard = True
                    silence.reschedule(asyncio.get_running_loop().time() + _SILENCE_S)
                    *lines, rest = (rest + piece).split(b"\n")
                    for change in self._read(lines):
                        yield change
        except TimeoutError as error:
            if heard or not silence.expired():
                raise
            # A kube-apiserver whose data was restored from a backup has yet to come to our version, and
            # says nothing of what is before: not even a bookmark, for as long as that takes.
            words = f"the watch said nothing at all in {_SILENCE_S:.0f} s: all is listed again"
            self._say(words)
            raise Expired(410, words) from error

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
                self._known[uid] = _stub(item)
            yield Change(item, gone)


def _watch_error(status: Manifest) -> KubernetesError:
    code, message = int(status.get("code") or 0), str(status.get("message") or "watch failed")
    return Expired(code, message) if code == 410 else KubernetesError(code, message)


def _stub(manifest: Manifest) -> Manifest:
    """Who an object is, which is all that its disappearance needs: manifests are not kept."""
    metadata = manifest["metadata"]
    return {
        "metadata": {name: metadata[name] for name in ("uid", "name", "namespace") if name in metadata}
    }
