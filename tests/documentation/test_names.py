"""Tests of the names of settings and metrics on pages: each name exists in the code."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from deploy.local.layout import CHECKOUT
from deploy.settings_page import AGENT, EXTENDER
from extender.telemetry import Telemetry
from tests.documentation.pages import PAGES

TEXTS = {page: page.read_text() for page in PAGES if page.name != "CHANGELOG.md"}
SETTING = re.compile(r"\b(?:SLURM_EXTENDER|NODE_AGENT)_[A-Z0-9_]*[A-Z0-9]")
METRIC = re.compile(r"\b(?:slurm_extender|node_agent)_[a-z0-9_]*")
KINDS = ("", "_total", "_count", "_sum", "_bucket")
NO_METRICS = {"slurm_extender_", "node_agent_", "slurm_extender"}


def code(folders: Iterable[str]) -> str:
    """Returns the text of all files in these folders."""
    files = (
        path for folder in folders for path in sorted((CHECKOUT / folder).rglob("*")) if path.is_file()
    )
    return "\n".join(
        path.read_text(errors="ignore") for path in files if "__pycache__" not in path.parts
    )


SETTINGS = {setting.variable for program in (EXTENDER, AGENT) for setting in program.settings()} | set(
    SETTING.findall(code(["deploy/slurm", "node_agent/slurmd"]))
)
"""Names of all settings: of both programs, of the scripts on Slurm's hosts, and of the scripts in slurmd
Pods."""
METRICS = {family.name for family in Telemetry().registry.collect()} | set(
    METRIC.findall(code(["deploy/monitoring", "extender", "node_agent", "service"]))
)
"""Texts in the code that may be names of metrics. A text that ends with `_` is the beginning of several
names."""


def is_a_metric(name: str) -> bool:
    """Returns True if this is the name of a metric, or the beginning of several names
    (`slurm_extender_pool_pending_*`)."""
    beginnings = tuple(each for each in METRICS - NO_METRICS if each.endswith("_"))
    whole = {f"{each}{kind}" for each in METRICS for kind in KINDS}
    begins = name.endswith("_") and any(each.startswith(name) for each in METRICS)
    return name in whole or begins or name.startswith(beginnings)


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: str(page.relative_to(CHECKOUT)))
def test_each_setting_on_a_page_exists(page: Path) -> None:
    assert set(SETTING.findall(TEXTS[page])) - SETTINGS == set()


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: str(page.relative_to(CHECKOUT)))
def test_each_metric_on_a_page_exists(page: Path) -> None:
    named = set(METRIC.findall(TEXTS[page])) - NO_METRICS
    assert [name for name in sorted(named) if not is_a_metric(name)] == []


def test_unknown_settings_and_metrics_are_found() -> None:
    assert "SLURM_EXTENDER_WINDOWS" not in SETTINGS
    assert not is_a_metric("slurm_extender_leadings")
    assert is_a_metric("slurm_extender_pool_pending_nodes")
    assert is_a_metric("slurm_extender_effect_seconds_count")
