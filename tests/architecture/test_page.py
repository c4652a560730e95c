"""Tests of docs/design/architecture.md: the page lists all packages in the order of their layers, the
libraries and the states, and has only valid links."""

from __future__ import annotations

import re
import tomllib

from deploy.local.layout import CHECKOUT
from extender.pages import renewed

PAGE = (CHECKOUT / "docs/design/architecture.md").read_text()
PROJECT = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
CONTRACTS = PROJECT["tool"]["importlinter"]["contracts"]
NAMED = re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)


def layers(name: str) -> list[str]:
    (contract,) = (each for each in CONTRACTS if each["name"] == name)
    return [package for layer in contract["layers"] for package in layer.split(" | ")]


def test_page_names_the_packages_in_the_order_of_the_layers() -> None:
    names = (
        "the extender's packages",
        "the node agent's packages",
        "the packages of slurm-cluster",
        "the modules of slurm-cluster's topology",
    )
    programs = (layers(name) for name in names)
    inside = [package for program in programs for package in program if package != "__main__"]
    assert [*layers("tests, tools, programs, clients, services"), *inside] == NAMED


def test_page_names_each_library_of_the_programs() -> None:
    section = PAGE.split("## Libraries, and code written by hand", 1)[1].split("\n## ", 1)[0]
    words = set(re.findall(r"[\w-]+", section.lower()))
    libraries = {re.split(r"[^\w-]", each, maxsplit=1)[0] for each in PROJECT["project"]["dependencies"]}
    assert len(libraries) > 10
    assert libraries <= words


def test_page_has_the_states_of_the_code() -> None:
    assert renewed("docs/design/architecture.md", PAGE) == PAGE, "run `make docs`"


def test_files_that_the_page_points_to_exist() -> None:
    targets = re.findall(r"\]\(\.\./\.\./([\w./]+)\)", PAGE)
    assert targets
    assert all((CHECKOUT / target).exists() for target in targets)
