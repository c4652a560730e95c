"""The events of a watch of a `Store`."""

from collections.abc import Callable
from typing import Final

import orjson

from kubernetes_client.in_memory.store import Change, Store
from kubernetes_client.protocol import Manifest

_WITHOUT_BOOKMARKS: Final = frozenset({"events"})
"""Resources without a watch cache in kube-apiserver (DefaultWatchCacheSizes)."""


class Watch:
    """An open watch of the objects of a kind that `fits` selects. The watch reports the changes after
    the version `since`. With "" as `since`, the watch first reports all objects."""

    def __init__(self, store: Store, kind: str, fits: Callable[[Manifest], bool], since: str) -> None:
        self.ended = False
        self.waits = False
        """True while the reader waits for an event."""
        self.bookmark_due = False
        """True if a bookmark follows the next events."""
        self._store = store
        self._kind = kind
        self._fits = fits
        self._opened = store.version
        self._from = int(since or store.version)
        self._at = sum(change.version <= self._from for change in store.changes)
        there = () if since else filter(fits, store.all(kind))
        self._first = b"".join(line("ADDED", manifest) for manifest in there)

    def expired(self, compacted: int) -> bool:
        """Returns True if the watch's version is older than all kept versions."""
        return self._from < compacted

    @property
    def idle(self) -> bool:
        """True if the reader waits and has all changes."""
        return self.waits and self._at == len(self._store.changes)

    def news(self) -> bytes:
        """Returns the lines of all new changes."""
        changes, self._at = self._store.changes[self._at :], len(self._store.changes)
        lines, self._first = self._first, b""
        lines += b"".join(self._line(change) for change in changes if change.kind == self._kind)
        bookmark_due, self.bookmark_due = self.bookmark_due, False
        return lines + self.bookmark() if bookmark_due else lines

    def bookmark(self) -> bytes:
        """Returns the line with the version of the kind's last change, even if the changed object is not
        selected. Returns b"" if the kind has no bookmarks, or no change since the opening of the
        watch."""
        if self._kind in _WITHOUT_BOOKMARKS:
            return b""
        changes = reversed(self._store.changes)
        last = next((change.version for change in changes if change.kind == self._kind), 0)
        if last <= self._opened:
            return b""
        return line("BOOKMARK", {"metadata": {"resourceVersion": str(last)}})

    def _line(self, change: Change) -> bytes:
        before = change.before if change.before and self._fits(change.before) else None
        after = change.after if change.after and self._fits(change.after) else None
        if after is not None:
            return line("MODIFIED" if before else "ADDED", after)
        if before is None:
            return b""
        metadata = {**before["metadata"], "resourceVersion": str(change.version)}
        return line("DELETED", {**before, "metadata": metadata})


def line(kind: str, manifest: Manifest) -> bytes:
    """Returns an event of a watch as a line."""
    return orjson.dumps({"type": kind, "object": manifest}) + b"\n"
