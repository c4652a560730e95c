"""Figures of the chart slurm, in build/slurm_chart.json."""

from __future__ import annotations

import json

from deploy.local.layout import CHECKOUT


def record(name: str, value: object) -> None:
    """Writes a figure beside those of other tests."""
    path = CHECKOUT / "build" / "slurm_chart.json"
    told = json.loads(path.read_text()) if path.exists() else {}
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({**told, name: value}, indent=1, sort_keys=True) + "\n")
