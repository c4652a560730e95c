"""Writes the measurements of the deployment tests to build/deploy.json."""

from __future__ import annotations

import fcntl
import json

from deploy.local.layout import CHECKOUT

_PATH = CHECKOUT / "build" / "deploy.json"


def leave(**figures: float) -> None:
    """Adds measurements to the file, even if other tests write to the file at the same time."""
    _PATH.parent.mkdir(exist_ok=True)
    with _PATH.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        known = json.loads(_PATH.read_text()) if _PATH.exists() else {}
        _PATH.write_text(json.dumps({**known, **figures}, indent=1, sort_keys=True) + "\n")
