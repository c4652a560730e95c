"""docs/configure.md, and the settings that it tells of."""

from __future__ import annotations

import pytest

from deploy.local.layout import CHECKOUT
from deploy.settings_page import AGENT, EXTENDER, PAGE, Program, camel_case, docstrings, renewed, rows

TEXT = (CHECKOUT / PAGE).read_text()


def test_the_tables_are_what_the_code_does() -> None:
    assert renewed(TEXT) == TEXT, "run `make docs`"


@pytest.mark.parametrize("program", [EXTENDER, AGENT], ids=lambda program: program.source)
def test_every_setting_says_what_it_does(program: Program) -> None:
    assert set(program.settings.model_fields) == set(docstrings(program.settings))


@pytest.mark.parametrize("program", [EXTENDER, AGENT], ids=lambda program: program.source)
def test_every_setting_has_its_row(program: Program) -> None:
    assert len(list(rows(program))) == len(program.settings.model_fields) + 2


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
def test_a_row_says_what_a_setting_is_by_default_and_may_be(name: str, default: str, kind: str) -> None:
    (row,) = (line for line in TEXT.splitlines() if f'<a id="{name}">' in line)
    assert row.split(" | ")[2:4] == [default, kind]


def test_values_are_named_as_the_chart_names_values() -> None:
    assert camel_case("slurm_timeout_s") == "slurmTimeoutS"


def test_a_page_without_a_place_for_a_table_is_told() -> None:
    with pytest.raises(ValueError, match="lacks"):
        renewed("# Configure\n")
