"""Tests of the pages of examples/, and of the scripts' assumptions."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.local.layout import CHECKOUT
from tests.builders import PREFIX
from tests.documentation.pages import anchors
from tests.examples.conftest import PREEMPTS
from tests.examples.reader import EXAMPLES, NAMES, called
from tests.examples.test_examples import ENVIRONMENT
from tests.verbs.callers import Listeners, body

INDEX = (EXAMPLES / "README.md").read_text()
MANIFESTS = sorted(EXAMPLES.glob("*/*.yaml"))
REFUSED = "05-refused-at-once"


def objects(manifest: Path) -> Iterator[dict[str, Any]]:
    yield from yaml.safe_load_all(manifest.read_text())


def template(found: dict[str, Any]) -> dict[str, Any] | None:
    """Returns the Pod or Pod template in an object: a Pod itself, or another object's template; None if
    the object has none."""
    if found["kind"] == "Pod":
        return found
    spec = found.get("spec", {})
    spec = spec.get("jobTemplate", {}).get("spec", spec)
    return spec.get("template")  # type: ignore[no-any-return]


def test_at_least_fifteen_examples_have_consecutive_numbers() -> None:
    assert [name.partition("-")[0] for name in NAMES] == [f"{n:02}" for n in range(1, len(NAMES) + 1)]
    assert len(NAMES) >= 15


def test_index_lists_each_example_once_in_order() -> None:
    assert tuple(re.findall(r"^\| \[([\w-]+)\]\(\1\) \|", INDEX, re.MULTILINE)) == NAMES


def test_index_lists_each_variable_of_the_scripts() -> None:
    scripts = "\n".join(script.read_text() for script in EXAMPLES.rglob("*.sh"))
    taken = set(re.findall(r"\$\{([A-Z_]+):-", scripts)) - {"VERBOSE"}
    told = {
        name
        for row in re.findall(r"^\| (`[A-Z_]+`.*?) \|", INDEX, re.MULTILINE)
        for name in row.split(", ")
    }
    assert {name.strip("`") for name in told} == taken
    assert {name for given in ENVIRONMENT.values() for name in given} <= taken


@pytest.mark.parametrize("name", NAMES)
def test_a_folder_has_a_short_page_and_a_script(name: str) -> None:
    page = (EXAMPLES / name / "README.md").read_text()
    assert page.startswith(f"# {name.partition('-')[0]}: ")
    assert 8 <= len(page.splitlines()) <= 18
    assert "\nYou see " in page
    assert "\nIt needs" in page
    assert os.access(EXAMPLES / name / "run.sh", os.X_OK)


@pytest.mark.parametrize("name", NAMES)
def test_links_of_a_page_have_targets(name: str) -> None:
    linked = re.findall(
        r"\]\((?!https:)([^)#]+)#?([^)]*)\)", (EXAMPLES / name / "README.md").read_text()
    )
    for target, section in linked:
        assert (EXAMPLES / name / target).exists(), target
        assert not section or section in anchors(EXAMPLES / name / target), section


def test_names_of_examples_are_not_prefixes_of_each_other() -> None:
    """Each script finds its leftovers by the prefix of their names."""
    begin = [called(name) for name in NAMES]
    assert [
        (one, other) for one in begin for other in begin if one != other and other.startswith(one)
    ] == []
    for manifest in MANIFESTS:
        for found in objects(manifest):
            assert found["metadata"]["name"].startswith(called(manifest.parent.name)), manifest
            assert "namespace" not in found["metadata"]


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda path: str(path.relative_to(EXAMPLES)))
async def test_extender_accepts_each_manifest_except_the_refused_example(manifest: Path) -> None:
    for found in objects(manifest):
        pod = template(found)
        if pod is None or "annotations" not in pod["metadata"]:
            continue
        if f"{PREFIX}gang" in pod["metadata"]["annotations"]:  # the controller adds labels
            labels = {"batch.kubernetes.io/job-name": "j", "batch.kubernetes.io/controller-uid": "u"}
            pod["metadata"] |= {"labels": labels}
            pod["metadata"]["annotations"][f"{PREFIX}gang-size"] = str(found["spec"].get("parallelism"))
        sent = body("mutate")
        sent["request"]["object"] = pod
        response = (await Listeners(shared_gpus="allow").ask("mutate", sent))["response"]
        assert response["allowed"] == (manifest.parent.name != REFUSED), response


def test_pages_show_the_tested_slurm_conf() -> None:
    for name in ("17-preempted-by-a-job", "18-preempts-a-job"):
        shown = re.findall(r"^    (\w+=.*)$", (EXAMPLES / name / "README.md").read_text(), re.MULTILINE)
        assert tuple(shown) == PREEMPTS


def test_shellcheck_covers_each_script() -> None:
    """`./check looks` lets shellcheck read the scripts."""
    scripts = set(EXAMPLES.rglob("*.sh"))
    patterns = re.findall(r"examples/\S+\.sh", (CHECKOUT / "check").read_text())
    assert {script for pattern in patterns for script in CHECKOUT.glob(pattern)} == scripts
    assert {script.read_text().partition("\n")[0] for script in scripts} == {
        "#!/bin/sh",
        "# shellcheck shell=sh",
    }
