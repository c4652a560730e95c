"""Reads the kubelet's count of a resource, and the devices of Pods, from the checkpoint file of the
kubelet's device manager. The kubelet writes the file after each report of a plugin, and after each
admission. The format is internal to the kubelet (pkg/kubelet/cm/devicemanager/checkpoint), so an
unreadable file counts as empty."""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final

from service.watched_file import Stamp, stamp

_FILE: Final = "kubelet_internal_checkpoint"


class Checkpoint:
    """The checkpoint file. The file is read again after each change."""

    def __init__(self, folder: Path) -> None:
        """Parameter `folder` is the kubelet's folder for device plugins."""
        self._file = folder / _FILE
        self._read: Stamp | None = None
        self._registered: dict[str, Collection[str]] = {}
        self._of_pods = list[dict[str, Any]]()

    def of_pods(self, resource: str) -> frozenset[str]:
        """Returns the devices of a resource that Pods have. A device has the name from the Pod's
        admission."""
        self._renew()
        own = (each for each in self._of_pods if each.get("ResourceName") == resource)
        by_numa_node = [each.get("DeviceIDs") or {} for each in own]
        return frozenset(name for each in by_numa_node for names in each.values() for name in names)

    def of(self, resource: str) -> Collection[str]:
        """Returns the healthy devices of a resource, by the names from the plugin that reported last.
        Returns () if the file lists no device."""
        self._renew()
        return self._registered.get(resource) or ()

    def _renew(self) -> None:
        try:
            now = stamp(self._file)
            if now != self._read:
                data = json.loads(self._file.read_text())["Data"]
                self._registered = dict(data["RegisteredDevices"] or {})
                self._of_pods = list(data.get("PodDeviceEntries") or ())
                self._read = now
        except (OSError, ValueError, LookupError, TypeError):
            self._registered, self._of_pods = {}, []
