"""Tests of the chart's values: each value has a comment in values.yaml and an entry in the schema, and
generated files are up to date."""

from __future__ import annotations

import json
from typing import Any

from deploy.charts import slurm_pages
from deploy.charts.pages import documented, found_below, words_of

OF_HELM = {("global",)}
FREE = {
    ("monitoring", "serviceMonitor", "labels"),
    ("config", "slurm"),
    ("config", "cgroup"),
    ("accounting", "slurmdbd", "config"),
} | {("accounting", "mariadb", "config")}
"""Values whose keys are settings of other programs, such as slurm.conf."""
OPTIONAL = ("limits", "requests", "claims")
ITEMS = {("images", "references")}


def schema() -> dict[str, Any]:
    made: dict[str, Any] = json.loads(slurm_pages.SCHEMA.read_text())
    return made


def known(part: dict[str, Any], above: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    """Returns the paths of the values that the schema names."""
    reference = part.get("$ref", "").removeprefix("#/definitions/")
    if reference in ("resources", "secretKey"):
        part = schema()["definitions"][reference]
    paths = {above} if above else set()
    for name, below in part.get("properties", {}).items():
        paths |= known(below, (*above, name))
    return paths


def test_the_page_the_schema_and_the_copies_are_up_to_date() -> None:
    """If this test fails, run `make docs`."""
    assert slurm_pages.PAGE.read_text() == slurm_pages.page()
    schema = slurm_pages.SCHEMA.read_text()
    assert slurm_pages.renewed_schema(schema) == schema
    for path, text in slurm_pages.copies().items():
        assert path.read_text() == text
    assert len(slurm_pages.copies()) == 2


def test_each_value_is_documented() -> None:
    found = documented(slurm_pages.VALUES.read_text())
    leaves = [path for path in found if not found_below(found, path)]
    assert [path for path in leaves if not words_of(found, path)] == []
    assert len(leaves) > 100


def test_each_value_is_in_the_schema_and_each_schema_entry_has_a_default() -> None:
    found = set(documented(slurm_pages.VALUES.read_text()))
    named = known(schema()) - OF_HELM
    free = {path for path in found if any(path[: len(one)] == one != path for one in FREE)}
    assert found - free - named == set()
    inside = {path for path in named if any(path[: len(one)] == one != path for one in ITEMS)}
    optional = {path for path in named if path[-1] in OPTIONAL}
    assert named - found - optional - inside == set()
