"""Writes the measurements of the chart slurm to build/slurm_chart.json."""

from __future__ import annotations

from tests.install import figures


def record(name: str, value: object) -> None:
    """Adds a measurement to the measurements of other tests."""
    figures.record(name, value, file="slurm_chart")
