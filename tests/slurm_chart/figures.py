"""Figures of the chart slurm, in build/slurm_chart.json."""

from __future__ import annotations

from tests.install import figures


def record(name: str, value: object) -> None:
    """Writes a figure beside those of other tests."""
    figures.record(name, value, file="slurm_chart")
