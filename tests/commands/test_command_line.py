"""Tests of the command line: which command runs, with which options, and with which exit status."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from deploy.local.layout import CHECKOUT
from extender import __main__ as program
from extender import app as serving
from extender.check.pods import Wish, placed, refused
from extender.commands import command_line, output
from extender.commands.preflight import Places
from extender.preflight.result import Result, Verdict
from node_agent import __main__ as agent
from service import command_line as service_command_line
from service.command_line import Output
from slurm_cluster import __main__ as cluster

COMMANDS = "extender.commands"
Calls = list[tuple[Any, ...]]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Replaces all commands by functions that record their calls. Returns the list of recorded calls."""
    made: Calls = []

    def record(name: str, status: int | None = None) -> Callable[..., int | None]:
        def run(*given: Any) -> int | None:
            made.append((name, *given))
            return status

        return run

    monkeypatch.setattr(serving, "main", record("serve"))
    monkeypatch.setattr(f"{COMMANDS}.preflight.run", record("preflight", 1))
    monkeypatch.setattr(f"{COMMANDS}.check.run", record("check", 0))
    monkeypatch.setattr(f"{COMMANDS}.audit.run", record("audit", 2))
    return made


def test_serve_runs_with_and_without_the_command_line(
    calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["slurm-extender", "serve"])
    program.main()
    assert calls == [("serve",)]
    assert CliRunner().invoke(command_line.app, ["serve"]).exit_code == 0
    assert calls == [("serve",)] * 2


PROGRAMS = {"slurm-extender": program.main, "node-agent": agent.main, "slurm-cluster": cluster.main}


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_prints_help_version_and_completions(
    name: str,
    calls: Calls,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(service_command_line, "version", {"slurm-extender": "1.2.3"}.__getitem__)
    monkeypatch.setattr(cluster, "configure_logging", lambda _level: None)  # affects the whole process

    def run(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        with pytest.raises(SystemExit):
            PROGRAMS[name]()
        printed = capsys.readouterr()
        return printed.out + printed.err

    assert f"Usage: {name} [OPTIONS] COMMAND" in run()
    assert run("--version") == f"{name} 1.2.3\n"
    monkeypatch.setenv(f"_{name.upper().replace('-', '_')}_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", f"{name} --ver")
    monkeypatch.setenv("COMP_CWORD", "1")
    assert run() == "--version\n"
    assert calls == []


def test_options_of_preflight_override_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_EXTENDER_SLURMRESTD_URL", "http://a")
    monkeypatch.setenv("SLURM_EXTENDER_SLURM_TOKEN_FILE", "/a")
    monkeypatch.setenv("SLURM_EXTENDER_KUBECONFIG", "/b")
    settings = Places("http://c", Path("/c"), None).settings()
    assert settings.slurmrestd_url == "http://c"
    assert (settings.slurm_token_file, settings.kubeconfig) == (Path("/c"), Path("/b"))


def test_command_runs_with_its_options(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["slurm-extender", "audit", "--settle", "2", "--output", "json"])
    with pytest.raises(SystemExit) as end:
        program.main()
    assert (end.value.code, calls) == (2, [("audit", Output.JSON, 2.0)])


@pytest.mark.parametrize(
    ("arguments", "status", "call"),
    [
        (["preflight"], 1, ("preflight", Output.TABLE, Places())),
        (
            [
                *("preflight", "-o", "json", "--slurmrestd", "http://a", "--token-file", "b"),
                *("--kubeconfig", "c", "--context", "d", "--scheduler-config", "e"),
            ],
            1,
            (
                "preflight",
                Output.JSON,
                Places("http://a", Path("b"), Path("c"), "d", Path("e")),
            ),
        ),
        (["audit"], 2, ("audit", Output.TABLE, 5.0)),
        (["check"], 0, ("check", Output.TABLE, Wish())),
        (
            ["check", "--device", "nvidia.com/gpu=2", "--annotation", "partition=a", "--timeout", "9"],
            0,
            (
                "check",
                Output.TABLE,
                Wish(devices={"nvidia.com/gpu": 2}, annotations={"partition": "a"}, timeout_s=9.0),
            ),
        ),
    ],
)
def test_options_become_the_arguments_of_the_command(
    arguments: list[str], status: int, call: tuple[Any, ...], calls: Calls
) -> None:
    assert CliRunner().invoke(command_line.app, arguments).exit_code == status
    assert calls == [call]


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["serve", "--now"],
        ["audit", "--output", "xml"],
        ["check", "--device", "nvidia.com/gpu"],
        ["check", "--device", "nvidia.com/gpu=many"],
        ["check", "--annotation", "=main"],
    ],
)
def test_a_wrong_command_line_is_refused(arguments: list[str], calls: Calls) -> None:
    assert CliRunner().invoke(command_line.app, arguments).exit_code == 2
    assert calls == []


def test_serving_loads_none_of_the_commands() -> None:
    code = "import sys, extender.__main__, extender.app; print([m for m in sys.modules if 'typer' in m])"
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_entry_points_of_installed_programs_exist() -> None:
    scripts = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]["scripts"]
    assert {"slurm-extender", "node-agent", "slurm-cluster"} == scripts.keys()
    for entry in scripts.values():
        module, _, function = entry.partition(":")
        assert callable(getattr(import_module(module), function))


# -- the output

RESULTS = (
    Result("token", Verdict.PASS, "slurmctld takes it", ""),
    Result("kill-wait", Verdict.WARN, "KillWait is 30 s", "Set it."),
    Result("nri", Verdict.SKIPPED, "not told", "On a Node: ls"),
    Result("webhooks", Verdict.FAIL, "there is none", "Install it."),
    Result("gres", Verdict.SKIPPED, "the token is wrong", "scontrol", "webhooks"),
    Result("cpus", Verdict.SKIPPED, "not told", "On a Node: lscpu"),
    Result("memory", Verdict.SKIPPED, "the token is wrong", "free", "webhooks"),
)


def test_table_shows_the_fix_below_each_line(capsys: pytest.CaptureFixture[str]) -> None:
    output.show(RESULTS, Output.TABLE)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(maxsplit=1) for line in lines] == [
        ["PASS", "token                 slurmctld takes it"],
        ["WARN", "kill-wait             KillWait is 30 s"],
        ["fix:", "Set it."],
        ["SKIPPED", "nri                   not told"],
        ["look:", "On a Node: ls"],
        ["not", "checked because of this (1): cpus"],
        ["FAIL", "webhooks              there is none"],
        ["fix:", "Install it."],
        ["not", "checked because of this (2): gres, memory"],
        ["1", "PASS, 1 WARN, 1 FAIL, 4 SKIPPED"],
    ]


def test_text_like_markup_is_printed_unchanged(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = "see [bold]x[/bold] and node[1-3]"
    output.print_line(Result("a", Verdict.PASS, words, ""), Console(highlight=False, width=120))
    assert words in capsys.readouterr().out


def test_json_output_has_the_results_of_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    output.show(RESULTS, Output.JSON)
    told = json.loads(capsys.readouterr().out)
    assert told["failed"] is True
    assert told["results"][1] == {
        "check": "kill-wait",
        "verdict": "WARN",
        "found": "KillWait is 30 s",
        "fix": "Set it.",
        "because": None,
    }
    assert [each["because"] for each in told["results"][4:]] == ["webhooks", None, "webhooks"]
    assert told["results"][0]["fix"] is None


# -- the Pods of the check


def test_pods_of_the_check_meet_the_restricted_standard_and_have_a_deadline() -> None:
    wish = Wish("apps", devices={"nvidia.com/gpu": 1}, annotations={"partition": "main"}, timeout_s=60)
    pod = placed("p", wish, "slurm-scheduler", "example.com/")
    assert pod["metadata"]["annotations"] == {"example.com/partition": "main"}
    assert pod["spec"]["activeDeadlineSeconds"] == 60
    (container,) = pod["spec"]["containers"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "1"}
    assert "requests" not in refused("r", wish, "slurm-scheduler")["spec"]["containers"][0]["resources"]
    for each in (pod, refused("r", wish, "slurm-scheduler")):
        security = each["spec"]["containers"][0]["securityContext"]
        assert (security["runAsNonRoot"], security["allowPrivilegeEscalation"]) == (True, False)
        assert security["capabilities"] == {"drop": ["ALL"]}
