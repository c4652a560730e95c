"""Compares docs/reference/preflight.md with the code."""

from __future__ import annotations

import re

import yaml

from deploy.local.layout import CHECKOUT
from extender.check.steps import _FIXES as STEPS
from extender.kube_scheduler.preemption_check import _LASTS_S as LASTS_S
from extender.kube_scheduler.preemption_check import _WATCH as WATCH
from extender.kube_scheduler.preemption_check import PART
from extender.pages import renewed
from extender.preflight.checks import CHECKS

TEXT = (CHECKOUT / "docs" / "reference" / "preflight.md").read_text()


def test_table_is_generated_from_the_code() -> None:
    assert renewed("docs/reference/preflight.md", TEXT) == TEXT, "run `make docs`"


def test_examples_show_existing_checks_and_steps() -> None:
    shown = re.findall(r"^    (?:\w+) +([\w-]+) {2,}\S", TEXT, re.MULTILINE)
    assert set(shown) <= {check.name for check in CHECKS} | STEPS.keys()
    assert [name for name in shown if name in STEPS] == list(STEPS)


def test_rights_of_the_check_are_rbac_rules() -> None:
    text = TEXT.partition("The account needs these rights:")[2].partition("check reads")[0]
    rules = yaml.safe_load(text)
    assert [(rule["resources"], rule["verbs"]) for rule in rules] == [
        (["pods"], ["create", "get", "delete"]),
        (["nodes"], ["get"]),
    ]


def test_page_has_the_names_and_duration_of_problems() -> None:
    assert f"`/readyz` names `{PART}`" in TEXT
    assert f"`/readyz` names `{WATCH}`" in TEXT
    assert LASTS_S == 600
    assert "for ten minutes" in TEXT
