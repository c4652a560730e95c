"""Tests of the table that compares SUNK's flags with this project's settings: each row names values and
settings that exist."""

from __future__ import annotations

import json
import re

import pytest

from deploy.local.chart import CHART
from deploy.local.layout import CHECKOUT
from deploy.settings_page import EXTENDER

_SECTION = (CHECKOUT / "docs/tasks/migrate.md").read_text().partition("### Flags of SUNK's scheduler")[2]
ROWS = [
    line.strip("|").split("|")
    for line in _SECTION.partition("\n## ")[0].splitlines()
    if line.startswith("|") and not line.startswith(("|---", "| flag of"))
]
VALUE = re.compile(r"`([a-z]\w*(?:\.\w+)*)`")
SETTINGS = {setting.variable: setting for setting in EXTENDER.settings()}


def is_a_value(path: str) -> bool:
    """Returns True if the chart's schema has this value."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    for part in path.split("."):
        while "$ref" in schema:
            name = schema["$ref"].rpartition("/")[2]
            schema = json.loads((CHART / "values.schema.json").read_text())["definitions"][name]
        if part not in schema.get("properties", {}):
            return False
        schema = schema["properties"][part]
    return True


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0].strip())
def test_row_names_values_and_settings_that_exist(row: list[str]) -> None:
    flag, chart, settings = row
    assert flag.strip()
    named = VALUE.findall(chart.replace("`30`", "").replace("`30s`", ""))
    assert [path for path in named if not is_a_value(path)] == []
    variables = re.findall(r"`(SLURM_EXTENDER_\w+)`", settings)
    assert variables
    for variable in variables:
        setting = SETTINGS[variable]
        if setting.made_of is None:
            assert f"extender.settings.{setting.key}" in named
        elif setting.made_of.startswith("`"):
            assert any(path.startswith(setting.made_of.strip("`")) for path in named)


def test_table_has_every_flag_of_the_scheduler() -> None:
    flags = " ".join(row[0] for row in ROWS)
    for flag in ("health", "metrics", "hooks", "token", "base", "slurm-kill-wait", "namespaces"):
        assert flag in flags
    for flag in ("scheduler-name", "components", "log level"):
        assert flag in flags
    assert not is_a_value("scheduler.naem")
