"""Compares docs/reference/annotations.md with the code."""

from __future__ import annotations

import re

import pytest

from deploy.local.layout import CHECKOUT
from extender.pages import renewed
from extender.pod_request.annotations import (
    ANNOTATIONS,
    DEFAULT_PAGE,
    Annotation,
    read_annotations,
)
from extender.pod_request.job_request import read_request
from tests.builders import TRANSLATION, pod_manifest
from tests.documentation.pages import anchors
from wellknown.names import DEFAULT_PREFIX

PAGE = CHECKOUT / DEFAULT_PAGE


def test_table_is_generated_from_the_code() -> None:
    assert renewed(DEFAULT_PAGE, PAGE.read_text()) == PAGE.read_text(), "run `make docs`"


def test_problem_of_exclusive_names_the_allowed_values() -> None:
    (row,) = (line for line in PAGE.read_text().splitlines() if '<a id="exclusive">' in line)
    assert "For a Pod with GPUs `none`, or `user`" in row
    assert "(#shared-gpus)" in row
    assert set(re.findall(r"\(#([^)]*)\)", row)) <= anchors(PAGE)


def test_page_without_a_place_for_the_table_is_an_error() -> None:
    with pytest.raises(ValueError, match="lacks"):
        renewed(DEFAULT_PAGE, "# Annotations\n")


@pytest.mark.parametrize("row", ANNOTATIONS, ids=lambda row: row.name)
def test_extender_accepts_the_example_of_each_annotation(row: Annotation) -> None:
    read = read_annotations({DEFAULT_PREFIX + row.name: row.example})
    assert row.field in read.fields
    assert not read.problems


def test_every_problem_points_to_a_place_on_the_page() -> None:
    wrong = {DEFAULT_PREFIX + row.name: "" for row in ANNOTATIONS}
    misspelt = {DEFAULT_PREFIX + "Partition": "main"}
    lacking = pod_manifest(
        annotations=wrong | misspelt, cpu=None, memory="lots", terminationGracePeriodSeconds=3600
    )
    problems = read_request(lacking, TRANSLATION).problems
    assert len(problems) == len(ANNOTATIONS) + 3
    for problem in problems:
        page, _, section = problem.rpartition(" (")[2].removesuffix(")").partition("#")
        assert page == DEFAULT_PAGE
        assert section in anchors(PAGE)
