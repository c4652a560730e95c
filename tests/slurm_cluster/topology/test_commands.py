"""Tests of the command `slurm-cluster topology`."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from slurm_cluster.topology.commands import app
from slurm_cluster.topology.model import Kind
from slurm_cluster.topology.rules import PRESETS, Preset
from tests.slurm_cluster.topology.labels import LEAF, SPINE, node


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments])


@pytest.fixture
def nodes(tmp_path: Path) -> Path:
    """Writes a file with the output of `kubectl get nodes -o json`, and returns the file's path."""
    items = [node(f"n{index}", spine="s1", leaf=f"l{index // 2}", gpu="yes") for index in range(4)]
    path = tmp_path / "nodes.json"
    path.write_text(json.dumps({"items": [*items, node("control-plane")]}))
    return path


def render(nodes: Path, *options: str) -> Result:
    return run("render", "--nodes", str(nodes), *options)


def tree(nodes: Path, *options: str) -> Result:
    return render(nodes, "--kind", "tree", "--tier", SPINE, "--tier", LEAF, *options)


def test_a_tree_is_printed_with_problems_on_stderr(nodes: Path) -> None:
    done = tree(nodes)
    assert done.exit_code == 1
    assert '{switch: "l0", nodes: "n[0-1]"}' in done.stdout
    assert done.stderr == f"label {LEAF} is missing: 1 nodes: control-plane\n"


def test_only_nodes_of_the_selector_are_printed(nodes: Path) -> None:
    done = tree(nodes, "--selector", "example.io/gpu=yes")
    assert (done.exit_code, done.stderr) == (0, "")
    assert "control-plane" not in done.stdout


def test_topology_conf_is_printed(nodes: Path) -> None:
    done = tree(nodes, "--output", "conf", "--selector", "example.io/gpu", "--root", "none")
    conf = "SwitchName=l0 Nodes=n[0-1]\nSwitchName=l1 Nodes=n[2-3]\nSwitchName=s1 Switches=l[0-1]\n"
    assert done.stdout == conf


def test_topology_conf_omits_entries_that_24_11_rejects(nodes: Path) -> None:
    sizes = ("--block-size", "2", "--selector", "example.io/gpu", "--output", "conf")
    blocks = render(nodes, "--kind", "block", "--tier", SPINE, *sizes)
    assert blocks.stdout == "BlockName=s1 Nodes=n[0-3]\nBlockSizes=2\n"
    reported = tree(nodes, "--members", "reported", "--output", "conf", "--selector", "example.io/gpu")
    assert reported.exit_code == 1
    assert "omitted" in reported.stderr


def test_the_names_of_the_previous_file_stay(nodes: Path, tmp_path: Path) -> None:
    before = tmp_path / "topology.yaml"
    before.write_text(tree(nodes).stdout)
    nodes.write_text(json.dumps({"items": [node("n0", spine="s1", leaf="l0")]}))
    after = tree(nodes, "--before", str(before))
    assert '{switch: "l1"}' in after.stdout


def test_no_file_of_blocks_is_printed_without_labels(nodes: Path) -> None:
    done = render(nodes, "--kind", "block", "--tier", "other", "--block-size", "2")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "no file is printed" in done.stderr


@pytest.mark.parametrize("preset", list(Preset))
def test_each_preset_reads_its_labels(preset: Preset, tmp_path: Path) -> None:
    labels = {PRESETS[preset, Kind.BLOCK][-1]: "8f1c2d3e-0000-4000-8000-000000000001.32766"}
    path = tmp_path / "nodes.json"
    path.write_text(json.dumps({"items": [{"metadata": {"name": "n1", "labels": labels}}]}))
    done = render(path, "--kind", "block", "--preset", preset, "--block-size", "1")
    assert done.exit_code == 0
    assert '{block: "8f1c2d3e-0000-4000-8000-000000000001.32766", nodes: "n1"}' in done.stdout


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--kind", "tree"), "no tiers: give a preset, or tiers"),
        (("--kind", "block", "--tier", LEAF), "block sizes"),
        (("--kind", "tree", "--tier", LEAF, "--preset", "topograph"), "sets the tiers: give"),
        (("--kind", "tree", "--tier", LEAF, "--before", "/no/such"), "No such file"),
    ],
)
def test_a_wrong_command_reports_its_problem(nodes: Path, options: tuple[str, ...], words: str) -> None:
    done = render(nodes, *options)
    assert done.exit_code == 2
    assert words in done.stderr


def test_an_invalid_file_of_nodes_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "nodes.json"
    path.write_text("NAME  STATUS\n")
    done = tree(path)
    assert done.exit_code == 2
    assert "kubectl get nodes -o json" in done.stderr


def test_an_invalid_target_is_rejected() -> None:
    done = run("watch", "--kind", "tree", "--tier", LEAF, "--config-map", "slurm-topology")
    assert done.exit_code == 2


def test_a_file_is_drawn(nodes: Path, tmp_path: Path) -> None:
    path = tmp_path / "topology.yaml"
    path.write_text(tree(nodes).stdout)
    done = run("draw", str(path))
    assert done.exit_code == 0
    assert done.stdout.startswith("<svg ")
    assert "tree default: 5 switches, 5 nodes" in done.stdout


def test_a_missing_scontrol_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/no/such")
    done = run("draw")
    assert done.exit_code == 1
    assert "scontrol cannot be run" in done.stderr
