"""The kubelet's counts of a resource, from the checkpoint of the kubelet's device manager. The kubelet
writes the file after each report of a plugin. The format is the kubelet's own
(pkg/kubelet/cm/devicemanager/checkpoint): an unreadable file counts as empty."""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Final

from service.watched_file import Stamp, stamp

_FILE: Final = "kubelet_internal_checkpoint"


class Checkpoint:
    """The file, read after each change."""

    def __init__(self, folder: Path) -> None:
        """Parameter `folder` is the kubelet's folder for plugins of devices."""
        self._file = folder / _FILE
        self._read: Stamp | None = None
        self._registered: dict[str, Collection[str]] = {}

    def of(self, resource: str) -> Collection[str]:
        """Returns the healthy devices of a resource, by the names of the last reporting plugin; () if
        the file has none."""
        try:
            now = stamp(self._file)
            if now != self._read:
                told = json.loads(self._file.read_text())
                self._registered = dict(told["Data"]["RegisteredDevices"] or {})
                self._read = now
        except (OSError, ValueError, LookupError, TypeError):
            self._registered = {}
        return self._registered.get(resource) or ()
