"""Compares docs/reference/configure.md with the settings."""

from __future__ import annotations

import json
from functools import reduce

import pytest
import yaml

from deploy.local.layout import CHECKOUT
from deploy.settings_page import AGENT, EXTENDER, PAGE, Program, renewed, rows

CHART = CHECKOUT / "deploy" / "charts" / "slurm-extender"
TEXT = (CHECKOUT / PAGE).read_text()


def test_tables_are_generated_from_the_code() -> None:
    assert renewed(TEXT) == TEXT, "run `make docs`"


@pytest.mark.parametrize("program", [EXTENDER, AGENT], ids=lambda program: program.source)
def test_each_setting_has_a_description(program: Program) -> None:
    assert [each.name for each in program.settings() if not each.words] == []


@pytest.mark.parametrize("program", [EXTENDER, AGENT], ids=lambda program: program.source)
def test_each_setting_has_a_row(program: Program) -> None:
    assert len(list(rows(program))) == len(program.model.model_fields) + 2


@pytest.mark.parametrize(
    ("name", "default", "kind"),
    [
        ("SLURM_EXTENDER_SLURM_TOKEN_FILE", "(must be set)", "path"),
        ("SLURM_EXTENDER_DEFAULT_GRACE", "`lower`", "`lower` or `refuse`"),
        ("SLURM_EXTENDER_POLICY", "", "`restricted` or `open`"),
        ("SLURM_EXTENDER_PRIORITY_CLASSES", "", "text"),
        ("SLURM_EXTENDER_SLURM_TIMEOUT_S", "`15`", "number, more than 0, less than 3,600"),
        ("NODE_AGENT_RESOURCES", '`{"nvidia.com/gpu": "gpu", "amd.com/gpu": "gpu"}`', "JSON"),
        ("NODE_AGENT_KEEP_OTHERS_OFF_CORES", "`false`", "`true` or `false`"),
    ],
)
def test_row_shows_the_default_and_the_type_of_a_setting(name: str, default: str, kind: str) -> None:
    (row,) = (line for line in TEXT.splitlines() if f'<a id="{name}">' in line)
    assert row.split(" | ")[2:4] == [default, kind]


def test_each_value_on_the_page_is_a_value_of_the_chart() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    definitions = json.loads((CHART / "values.schema.json").read_text())["definitions"]
    for program in ("extender", "nodeAgent"):
        values[program]["settings"] = definitions[f"{program}Settings"]["properties"]
    cells = [row.split(" | ")[1] for row in TEXT.splitlines() if row.startswith('| <a id="')]
    named = [cell.strip("`").split(".") for cell in cells if cell.startswith("`")]
    assert len(named) > len(cells) / 2
    for path in named:
        reduce(lambda found, part: found[part], path, values)


def test_page_without_a_place_for_a_table_is_an_error() -> None:
    with pytest.raises(ValueError, match="lacks"):
        renewed("# Configure\n")
