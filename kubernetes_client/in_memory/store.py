"""Keeps all versions of the objects of an `InMemoryKubernetes`, and wakes the tasks that wait for the
next version."""

import asyncio
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import orjson

from kubernetes_client.errors import Conflict, NotFound
from kubernetes_client.protocol import Manifest

Key = tuple[str, str, str]
"""Kind, namespace ("" for kinds without namespaces) and name."""


@dataclass(frozen=True, slots=True)
class Change:
    """A write: the object before (None for a new object) and after (None for a deleted object)."""

    version: int
    kind: str
    before: Manifest | None
    after: Manifest | None


class Store:
    """Keeps objects as etcd does: with a version counter for all objects, and all changes."""

    def __init__(self) -> None:
        self.version = 0
        """The version of the last write."""
        self.changes: list[Change] = []
        self.changed = asyncio.Event()
        """At every write and every `touch`, this event is set, and a new event takes its place."""
        self._objects: dict[Key, Manifest] = {}
        self._uids = 0

    def find(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        """Returns a copy of an object, or None if no object matches."""
        found = self._objects.get((kind, namespace, name))
        return None if found is None else _copy(found)

    def get(self, kind: str, namespace: str, name: str) -> dict[str, Any]:
        """Returns a copy of an object. Raises NotFound."""
        found = self.find(kind, namespace, name)
        if found is None:
            raise NotFound(404, f'{kind} "{name}" not found')
        return found

    def all(self, kind: str) -> list[dict[str, Any]]:
        """Returns copies of all objects of a kind, by namespace and name."""
        return [_copy(found) for key, found in sorted(self._objects.items()) if key[0] == kind]

    def create(self, kind: str, manifest: Manifest) -> dict[str, Any]:
        """Adds an object, with a new uid if the manifest has none. Returns the object. Raises
        Conflict."""
        key = _key(kind, manifest)
        if key in self._objects:
            raise Conflict(409, f'{kind} "{key[2]}" already exists')
        self._uids += 1
        created = _copy(manifest)
        metadata = created["metadata"]
        metadata.setdefault("uid", str(UUID(int=self._uids)))
        return self._write(key, created)

    def update(self, kind: str, manifest: Manifest) -> dict[str, Any]:
        """Writes a new version of an object. Returns the object. A write without changes makes no new
        version."""
        key = _key(kind, manifest)
        changed = _copy(manifest)
        return changed if changed == self._objects[key] else self._write(key, changed)

    def remove(self, kind: str, namespace: str, name: str) -> None:
        """Removes an object."""
        before = self._objects.pop((kind, namespace, name))
        self._add(Change(self.version + 1, kind, before, None))

    def touch(self) -> None:
        """Wakes the waiting tasks without a write."""
        self.changed.set()
        self.changed = asyncio.Event()

    def _write(self, key: Key, manifest: dict[str, Any]) -> dict[str, Any]:
        """Writes an object. The manifest's version is kept if newer than all versions."""
        version = max(self.version + 1, int(manifest["metadata"].get("resourceVersion") or 0))
        manifest["metadata"]["resourceVersion"] = str(version)
        before, self._objects[key] = self._objects.get(key), manifest
        self._add(Change(version, key[0], before, manifest))
        return _copy(manifest)

    def _add(self, change: Change) -> None:
        self.version = change.version
        self.changes.append(change)
        self.touch()


def _key(kind: str, manifest: Manifest) -> Key:
    metadata = manifest["metadata"]
    return kind, metadata.get("namespace") or "", metadata["name"]


def _copy(manifest: Manifest) -> dict[str, Any]:
    """Returns a deep copy, by way of JSON, because copy.deepcopy is slow."""
    copied: dict[str, Any] = orjson.loads(orjson.dumps(manifest))
    return copied
