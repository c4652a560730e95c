"""Writes the measurements of the chart slurm to build/slurm_chart.json."""

from __future__ import annotations

from tests.install import figures


def record(name: str, value: object) -> None:
    """Writes a measurement to the file. The measurements of other tests stay in the file."""
    figures.record(name, value, file="slurm_chart")
