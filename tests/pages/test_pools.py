"""Tests that the extender accepts the examples of docs/tasks/pools.md."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from extender.pools.file import read
from tests.slurmd_pods.page import Step, examples, file_with
from tests.slurmd_pods.world import IMAGE, pools

PARTS = [
    (number, step)
    for number, steps in examples().items()
    for step in steps
    if step.file is not None and "kind" not in step.file
]


@pytest.mark.parametrize(("number", "step"), PARTS, ids=lambda each: str(each) if each else "")
def test_each_example_is_a_valid_pools_file(number: int, step: Step, tmp_path: Path) -> None:
    assert step.file is not None
    path = tmp_path / "pools.yaml"
    path.write_text(yaml.safe_dump(dict(step.file) if number == 1 else file_with(step.file)))
    (pool,) = read(path)
    assert pool.name == "dyn"


def test_tests_of_pools_use_the_first_example() -> None:
    assert yaml.safe_load(pools(IMAGE)) == file_with({})
