"""Tests of examples/22-a-roll-out on a cluster with slurmd Pods."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.examples.reader import Reader, Told
from tests.slurmd_pods.world import World, pools

pytestmark = pytest.mark.real

EXAMPLE = "22-a-roll-out"


def rolled_out(world: World, folder: Path, image: str, **given: str) -> Told:
    """Runs the example: rolls out another image, and then the first image again. Returns the result that
    the example prints."""
    files = {"ROLL_OUT": pools(f"registry.example.com/{image}"), "ROLL_BACK": pools()}
    commands = {}
    for name, text in files.items():
        (folder / name).write_text(text)
        commands[name] = f"cp {folder / name} {world.cluster.pools_file}"
    (pool,) = yaml.safe_load(pools())["pools"]
    chosen = {"POOL": pool["name"], "PARTITION": "dynamic"}
    return Reader(world.cluster).runs(EXAMPLE, **{**chosen, **commands, **given})


def test_the_example_passes(world: World, tmp_path: Path) -> None:
    told = rolled_out(world, tmp_path, "slurmd:2")
    assert told.verdict == "PASS", told
    world.all_serve("dynamic-1", "dynamic-2", "dynamic-3", "dynamic-4")


def test_the_example_fails_if_the_template_changes_nothing(world: World, tmp_path: Path) -> None:
    told = rolled_out(world, tmp_path, "slurmd:1", WITHIN="5")
    assert told.verdict == "FAIL", told
    assert "the slurmd Pods of the 3 other Nodes are replaced: not within 10 s" in told.why


def test_the_example_is_skipped_without_the_name_of_a_pool(world: World, tmp_path: Path) -> None:
    told = rolled_out(world, tmp_path, "slurmd:2", POOL="")
    assert told.verdict == "SKIPPED", told
    assert "POOL names no pool" in told.why
