"""Tests of the chart's values: each value has a description in values.yaml, and the schema contains each
value and each setting."""

from __future__ import annotations

import json
from typing import Any

import pytest

from deploy.charts import pages
from deploy.charts.settings import Setting, agent_settings, extender_settings
from extender.settings import Settings as ExtenderSettings
from node_agent.settings import Settings as AgentSettings

OF_HELM = {("global",)}
"""Values that Helm itself adds."""
OF_OTHERS = {("gpuTypes",), ("policy",)}
"""Values whose keys the user chooses, or another file defines."""
FREE = {("monitoring", "dashboards", "labels")}
OPTIONAL = ("limits", "requests", "claims", "matchLabels", "matchExpressions")


def schema() -> dict[str, Any]:
    made: dict[str, Any] = json.loads(pages.SCHEMA.read_text())
    return made


def known(part: dict[str, Any], above: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    """Returns the paths of the values that the schema names."""
    reference = part.get("$ref", "").removeprefix("#/definitions/")
    if reference in ("image", "secretKey", "resources"):
        part = schema()["definitions"][reference]
    paths = {above} if above else set()
    for name, below in part.get("properties", {}).items():
        paths |= known(below, (*above, name))
    return paths


def test_schema_and_page_are_generated_from_the_values() -> None:
    """If this test fails, run `make docs`."""
    text = pages.SCHEMA.read_text()
    assert pages.renewed_schema(text) == text
    assert pages.PAGE.read_text() == pages.page()


def test_each_value_is_documented() -> None:
    found = pages.documented(pages.VALUES.read_text())
    leaves = [path for path in found if not pages.found_below(found, path)]
    assert [path for path in leaves if not pages.words_of(found, path)] == []
    assert len(leaves) > 50


def test_values_and_schema_have_the_same_names() -> None:
    found = set(pages.documented(pages.VALUES.read_text()))
    named = known(schema()) - OF_HELM
    optional = {path for path in named if path[-1] in OPTIONAL}
    ours = {path for path in found if path[:1] not in OF_OTHERS or len(path) == 1}
    assert {path for path in ours if path[:3] not in FREE} - named == set()
    assert named - found - optional == set()


@pytest.mark.parametrize(
    ("settings", "model"), [(extender_settings(), ExtenderSettings), (agent_settings(), AgentSettings)]
)
def test_each_setting_comes_from_a_value(settings: list[Setting], model: Any) -> None:
    assert {each.name for each in settings} == model.model_fields.keys()
    page = pages.page()
    for each in settings:
        assert f"`{each.variable}`" in page


def test_schema_has_each_setting_that_the_chart_does_not_derive() -> None:
    definitions = schema()["definitions"]
    named = {"extenderSettings": extender_settings(), "nodeAgentSettings": agent_settings()}
    for name, settings in named.items():
        own = {each.key for each in settings if each.made_of is None}
        names = definitions[name]["properties"].keys()
        assert own | {each.name.upper() for each in settings if each.made_of is None} == set(names)
        assert "healthPort" not in names
