"""What the kubelet counts of a resource, from the file in which it keeps that (device manager's
checkpoint). It writes the file each time that a plugin tells of its devices, and its format is the
kubelet's own (pkg/kubelet/cm/devicemanager/checkpoint): what cannot be read tells nothing."""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Final

from service.watched_file import Stamp, stamp

_FILE: Final = "kubelet_internal_checkpoint"


class Checkpoint:
    """The file, read where it has changed."""

    def __init__(self, folder: Path) -> None:
        """`folder` is the kubelet's for plugins of devices."""
        self._file = folder / _FILE
        self._read: Stamp | None = None
        self._registered: dict[str, Collection[str]] = {}

    def of(self, resource: str) -> Collection[str]:
        """Returns the healthy devices of a resource, by the names of the plugin that was the last to
        tell of its devices; none where the kubelet does not say."""
        try:
            now = stamp(self._file)
            if now != self._read:
                told = json.loads(self._file.read_text())
                self._registered = dict(told["Data"]["RegisteredDevices"] or {})
                self._read = now
        except (OSError, ValueError, LookupError, TypeError):
            self._registered = {}
        return self._registered.get(resource) or ()
