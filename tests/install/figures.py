"""Writes measurements of the tests to files in the folder build."""

from __future__ import annotations

import json
import time

from deploy.local.layout import CHECKOUT


def record(name: str, value: object, *, file: str = "deploy") -> None:
    """Adds a measurement to build/FILE.json. Keeps the measurements of other tests."""
    path = CHECKOUT / "build" / f"{file}.json"
    told = json.loads(path.read_text()) if path.exists() else {}
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({**told, name: value}, indent=1, sort_keys=True) + "\n")


def seconds_since(began: float) -> float:
    return round(time.monotonic() - began, 1)
