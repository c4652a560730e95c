"""Tests that each command on a page has a mark, which names the command's test. The tests also run the
commands with the mark `run` on a real cluster, exactly as the page shows the commands.

A mark is a comment before a block of code:

- `<!-- run -->`, `<!-- run by tests/... -->` or `<!-- not run: why -->` stands before commands. With
  `, all of this section`, the mark applies until the next heading of the same level.
- `<!-- file: NAME -->` stands before the text of the file NAME, which the commands use.
- `<!-- values -->` stands before values that the chart must accept.

If a page shows the output of a command, the command must print the same output. In the shown output,
`...` stands for any text within a line, and a line with only `...` stands for any number of lines.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import takewhile
from pathlib import Path

import pytest
import yaml

from deploy.local.chart import Rendered
from deploy.local.cluster import Cluster
from deploy.local.layout import CHECKOUT
from deploy.local.programs.helm_binary import helm
from deploy.local.progress import silent
from deploy.local.spec import ClusterSpec
from tests.documentation.commands import Command, commands, words
from tests.documentation.pages import PAGES, Block, Mark, blocks
from tests.eventually import eventually_not
from tests.readme import first_pod

SHOWN = [
    (block, command)
    for page in PAGES
    if page.name != "CHANGELOG.md"
    and not page.is_relative_to(CHECKOUT / "examples")  # tests/examples tests these pages
    for block in blocks(page)
    for command in commands(block)
]
INSTALLING = [
    CHECKOUT / name
    for name in (
        "docs/tasks/without-helm.md",
        "docs/tasks/install.md",
        "docs/tasks/upgrade.md",
        "docs/tasks/uninstall.md",
        "README.md",
    )
]
"""Pages that are tested in this order on one cluster without an extender. kwok plays the kubelets, so no
container runs."""
RUN = sorted(
    {block.page for block, _ in SHOWN if block.mark and block.mark.kind == "run"} - set(INSTALLING)
)
PREPARED = {
    "first-day.md": "kubectl create namespace team-a",
    "scope.md": "kubectl create namespace team-a",
    "README.md": "kubectl create namespace team-a",
    "without-helm.md": "kubectl create namespace team-a; kubectl create namespace slurm-extender",
}
"""By page: a command that creates the objects that the page expects. README's first Pod, `chat`, always
exists."""
FOLDERS = {
    ".",
    "docs",
    *(f"docs/{kind}" for kind in ("concepts", "design", "reference", "tasks", "troubleshooting")),
}
"""Folders with many pages. If a test names such a folder, the test need not be about a page in the
folder."""
NAMES = {"ip-10-0-0-7": "node-4", "gpu-07": "node-4"}
"""By name on a page: the name that the test uses in this cluster."""


def test_each_command_has_a_mark_of_its_test() -> None:
    without = [f"{block}: {command.text}" for block, command in SHOWN if block.mark is None]
    assert without == [], "each block needs a comment before it: see this module's docstring"


@pytest.mark.parametrize(
    "block",
    dict.fromkeys(block for block, _ in SHOWN if block.mark and block.mark.kind == "run by"),
    ids=str,
)
def test_mark_names_a_test_that_names_the_page_or_its_commands(block: Block) -> None:
    assert block.mark is not None
    test, page = (CHECKOUT / block.mark.what).read_text(), block.page.relative_to(CHECKOUT)
    named = {str(page), str(page.parent)} - FOLDERS
    unknown = [each.text for each in commands(block) if not _occurs(each, test)]
    assert any(name in test for name in named) or unknown == []


def _occurs(command: Command, test: str) -> bool:
    """Returns True if the text of a test contains the program (or the module of this name) and the
    subcommands of a command."""
    program, *arguments = words(command.text)
    subcommands = takewhile(re.compile(r"[a-z][a-z-]*").fullmatch, arguments)
    names = (rf"\b{program.replace('-', '[-_]')}\b", *(rf"\b{each}\b" for each in subcommands))
    return all(re.search(name, test) for name in names)


def test_each_make_target_and_module_on_a_page_exists() -> None:
    targets = set(re.findall(r"^([\w-]+):", (CHECKOUT / "Makefile").read_text(), re.MULTILINE))
    text = "\n".join(page.read_text() for page in PAGES if page.name != "CHANGELOG.md")
    assert set(re.findall(r"(?:`|^    )make ([\w-]+)", text, re.MULTILINE)) <= targets
    modules = set(re.findall(r"python -m ([\w.]+)", text))
    assert [module for module in modules if find_spec(module) is None] == []


def test_numbers_of_commands_are_written_to_build() -> None:
    tried = [block for block, _ in SHOWN if block.mark and block.mark.kind in ("run", "run by")]
    path = CHECKOUT / "build" / "deploy.json"
    told = json.loads(path.read_text()) if path.exists() else {}
    told |= {"doc_commands": len(SHOWN), "doc_commands_run": len(tried)}
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(told, indent=1, sort_keys=True) + "\n")
    assert len(tried) > len(SHOWN) / 2


@dataclass(frozen=True)
class Shell:
    """A user's shell, with the commands of a cluster and its own working folder."""

    cluster: Cluster
    folder: Path

    def run(self, command: str) -> str:
        """Runs a command and returns the output. Fails if the command fails."""
        here = {**NAMES, "http://slurmrestd.example.com:6820": self.cluster.slurmrestd_url}
        for name, meant in here.items():
            command = command.replace(name, meant)
        folders = (
            self.cluster.directory / "bin",
            programs(self.folder / "bin"),
            Path(sys.executable).parent,
            CHECKOUT / "deploy" / "slurm",
            helm(silent).parent,
        )
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command],
            cwd=self.folder,
            env={
                **os.environ,
                "PATH": os.pathsep.join([*map(str, folders), os.environ["PATH"]]),
                "PYTHONPATH": str(CHECKOUT),
                **(self.cluster.extender_environment if self.cluster.spec.extender else {}),
                "SLURM_EXTENDER_KUBECONFIG": str(self.cluster.kubeconfig),
                "KUBECONFIG": str(self.cluster.kubeconfig),
                **{
                    f"HELM_{kind}_HOME": str(self.folder / "helm")
                    for kind in ("CACHE", "CONFIG", "DATA")
                },
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=240,  # seconds: helm waits for Pods, and kubectl for the end of a namespace
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout

    def follow(self, page: Path) -> None:
        """Follows a page from the top to the end: writes the files, and runs the commands."""
        self.write(page)
        for block in blocks(page):
            if block.mark and block.mark.kind == "run":
                for command in commands(block):
                    self.type(command)

    def write(self, page: Path) -> None:
        """Writes the files of a page."""
        for block in blocks(page):
            if block.mark and block.mark.kind == "file":
                (self.folder / block.mark.what).write_text(block.text)

    def type(self, command: Command, within: float = 40) -> None:
        """Runs a command. If the output is not the output on the page, runs the command again until the
        output is the same."""
        printed = self.run(command.text)
        expected = _pattern(command.printed)
        if command.printed.strip() and not re.fullmatch(expected, _plain(printed)):

            def other() -> str:
                seen = self.run(command.text)
                return "" if re.fullmatch(expected, _plain(seen)) else seen or "nothing"

            eventually_not(other, f"{command.text}\n{command.printed}", within)


def programs(folder: Path) -> Path:
    """Writes the programs of the project's wheel to a folder, and returns the folder."""
    folder.mkdir(exist_ok=True)
    scripts = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]["scripts"]
    for name, entry in scripts.items():
        module, function = entry.split(":")
        program = f"import sys; from {module} import {function}; sys.exit({function}())"
        (folder / name).write_text(f"#!{sys.executable}\n{program}\n")
        (folder / name).chmod(0o755)
    return folder


def _pattern(printed: str) -> str:
    lines = re.escape(_plain(printed)).replace(r"\.\.\.", ".*").split("\\\n")
    return "".join("(.*\n)*" if line == ".*" else f"{line}\n" for line in lines[:-1])


def _plain(printed: str) -> str:
    """Returns the output with single spaces between columns."""
    return "".join(" ".join(line.split()) + "\n" for line in printed.strip().splitlines())


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A cluster with the policy of docs/tasks/first-day.md. In namespaces without a rule, the policy
    permits everything."""
    rules = next(
        block for block in blocks(CHECKOUT / "docs/tasks/first-day.md") if "preset" in block.text
    )
    policy = {**yaml.safe_load(rules.text), "preset": "open"}
    spec = ClusterSpec(
        nodes=4, cpus_per_node=8, memory_mb=16_000, gpus_per_node=4, policy=json.dumps(policy)
    )
    with (
        tempfile.TemporaryDirectory(prefix="pages-") as directory,
        Cluster.up(spec, directory) as running,
    ):
        running.kubectl("apply", "-f", "-", stdin=first_pod())
        yield running


@pytest.mark.real
@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", RUN, ids=lambda page: page.name)
def test_commands_of_a_page_print_the_shown_output(page: Path, cluster: Cluster, tmp_path: Path) -> None:
    do(page, Shell(cluster, tmp_path))


@pytest.mark.real
@pytest.mark.timeout(600)
def test_commands_of_the_pages_install_upgrade_and_uninstall_the_release(tmp_path: Path) -> None:
    spec = ClusterSpec(nodes=4, extender=False)
    (tmp_path / "deploy").symlink_to(CHECKOUT / "deploy")
    with (
        tempfile.TemporaryDirectory(prefix="installed-") as directory,
        Cluster.up(spec, directory) as cluster,
    ):
        shell = Shell(cluster, tmp_path)
        shell.write(CHECKOUT / "docs/tasks/install.md")
        for page in INSTALLING:
            do(page, shell)


def do(page: Path, shell: Shell) -> None:
    """Prepares the cluster for a page, and then follows the page. First deletes the namespaces that
    earlier pages may have created, and then creates the objects of PREPARED. Before upgrade.md and
    uninstall.md, keeps the namespaces, because these pages need the release from install.md."""
    if page.name not in {"upgrade.md", "uninstall.md"}:
        shell.run("kubectl delete namespace team-a slurm-extender --ignore-not-found")
    if page.name in PREPARED:
        shell.run(PREPARED[page.name])
    shell.follow(page)


@pytest.mark.real
@pytest.mark.parametrize(
    "block",
    [block for page in PAGES for block in blocks(page) if block.mark and block.mark.kind == "values"],
    ids=str,
)
def test_chart_accepts_the_values_on_a_page(block: Block) -> None:
    install = CHECKOUT / "docs/tasks/install.md"
    given = next(each.text for each in blocks(install) if each.mark == Mark("file", "values.yaml"))
    values = yaml.safe_load(given) | yaml.safe_load(block.text)
    assert Rendered.of(helm(silent), values).manifests


@pytest.mark.real
def test_failed_command_and_wrong_output_are_found(cluster: Cluster, tmp_path: Path) -> None:
    shell = Shell(cluster, tmp_path)
    with pytest.raises(AssertionError, match="no-such-pod"):
        shell.run("kubectl get pod no-such-pod")
    with pytest.raises(AssertionError, match="NEVER"):
        shell.type(Command('squeue -o "%T"', "STATE\nNEVER\n"), within=1)
