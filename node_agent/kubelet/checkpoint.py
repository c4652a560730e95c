"""The kubelet's counts of a resource, and the devices of Pods, from the checkpoint of the kubelet's
device manager. The kubelet writes the file after each report of a plugin, and after each admission. The
format is the kubelet's own (pkg/kubelet/cm/devicemanager/checkpoint): an unreadable file counts as
empty."""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final

from service.watched_file import Stamp, stamp

_FILE: Final = "kubelet_internal_checkpoint"


class Checkpoint:
    """The file, read after each change."""

    def __init__(self, folder: Path) -> None:
        """Parameter `folder` is the kubelet's folder for plugins of devices."""
        self._file = folder / _FILE
        self._read: Stamp | None = None
        self._registered: dict[str, Collection[str]] = {}
        self._of_pods = list[dict[str, Any]]()

    def of_pods(self, resource: str) -> frozenset[str]:
        """Returns the devices of a resource that Pods have, by the names at the time of each Pod's
        admission."""
        self._renew()
        own = (each for each in self._of_pods if each.get("ResourceName") == resource)
        by_numa_node = [each.get("DeviceIDs") or {} for each in own]
        return frozenset(name for each in by_numa_node for names in each.values() for name in names)

    def of(self, resource: str) -> Collection[str]:
        """Returns the healthy devices of a resource, by the names of the last reporting plugin; () if
        the file has none."""
        self._renew()
        return self._registered.get(resource) or ()

    def _renew(self) -> None:
        try:
            now = stamp(self._file)
            if now != self._read:
                told = json.loads(self._file.read_text())["Data"]
                self._registered = dict(told["RegisteredDevices"] or {})
                self._of_pods = list(told.get("PodDeviceEntries") or ())
                self._read = now
        except (OSError, ValueError, LookupError, TypeError):
            self._registered, self._of_pods = {}, []
