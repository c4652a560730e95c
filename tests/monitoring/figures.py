"""The figures of what is deployed, which several tests leave: build/deploy.json."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path

from deploy.local.layout import CHECKOUT

FILE = CHECKOUT / "build" / "deploy.json"


def leave(figures: dict[str, float], file: Path = FILE) -> None:
    """Adds figures to those that are there."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a+") as shared:
        fcntl.flock(shared, fcntl.LOCK_EX)
        shared.seek(0)
        text = shared.read()
        known = json.loads(text) if text.strip() else {}
        shared.truncate(0)
        shared.write(json.dumps(known | figures, indent=1, sort_keys=True) + "\n")
