"""Tests of the output and the exit status of `slurm-extender audit`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from deploy.local.layout import CHECKOUT
from extender.audit.compare import Finding, FindingKind
from extender.commands import audit as command
from extender.settings import Settings
from service.command_line import Output
from slurm_client.errors import Unreachable
from tests.builders import cause_of
from tests.documentation.commands import commands
from tests.documentation.pages import blocks

ORPHAN = Finding(
    FindingKind.ORPHAN_JOB, cause_of("", "its Pod is gone"), "end it", "default/p", 40000000, mended=True
)
DRAIN = Finding(FindingKind.STUCK_DRAIN, cause_of("", "drained for nothing"), "undrain it", node="n1")
NOTE = Finding(
    FindingKind.OTHER_CLUSTER, cause_of("", "another cluster's"), "nothing", "default/q", 40000001
)

Finds = Callable[..., None]


@pytest.fixture
def finds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Finds:
    """Returns a function that sets what the next audit returns or raises."""
    monkeypatch.setenv("SLURM_EXTENDER_SLURM_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setattr(command, "configure_logging", lambda _level: None)  # affects the whole process

    def find(*findings: Finding, error: Exception | None = None) -> None:
        async def audit(_settings: Settings, _settle: float) -> tuple[Finding, ...]:
            if error is not None:
                raise error
            return findings

        monkeypatch.setattr(command, "_audit", audit)

    return find


def test_systems_without_differences_are_reported_as_equal(
    finds: Finds, capsys: pytest.CaptureFixture[str]
) -> None:
    finds()
    assert command.run(Output.TABLE, 5.0) == 0
    assert capsys.readouterr().out == "both systems agree\n"


def test_each_difference_has_a_cause_and_a_fix(finds: Finds, capsys: pytest.CaptureFixture[str]) -> None:
    finds(ORPHAN, DRAIN)
    assert command.run(Output.TABLE, 5.0) == 1
    assert capsys.readouterr().out.splitlines() == [
        "KIND        POD        JOB       NODE  MENDED BY",
        "OrphanJob   default/p  40000000  -     leader",
        "  cause: its Pod is gone",
        "  fix:   end it",
        "StuckDrain  -          -         n1    person",
        "  cause: drained for nothing",
        "  fix:   undrain it",
    ]


def test_page_shows_the_output_and_the_exit_status(
    finds: Finds, capsys: pytest.CaptureFixture[str]
) -> None:
    page = CHECKOUT / "docs/concepts/audit.md"
    audit, status = commands(next(blocks(page)))
    cause, fix = re.findall(r"  (?:cause|fix): +(.*)", audit.printed)
    finds(
        Finding(FindingKind.ORPHAN_JOB, cause_of("", cause), fix, "default/chat", 46403111, mended=True)
    )
    assert (audit.text, status.text) == ("slurm-extender audit", "echo $?")
    assert command.run(Output.TABLE, 5.0) == int(status.printed)
    assert capsys.readouterr().out == audit.printed


def test_note_is_printed_and_is_no_difference(finds: Finds, capsys: pytest.CaptureFixture[str]) -> None:
    finds(NOTE)
    assert command.run(Output.JSON, 5.0) == 0
    (told,) = json.loads(capsys.readouterr().out)["findings"]
    assert (told["kind"], told["differs"], told["job"]) == ("OtherCluster", False, 40000001)


def test_system_that_does_not_answer_ends_with_status_2(
    finds: Finds, capsys: pytest.CaptureFixture[str]
) -> None:
    finds(error=Unreachable("slurmctld was not reached"))
    assert command.run(Output.TABLE, 5.0) == 2
    assert "slurmctld was not reached" in capsys.readouterr().err


def test_wrong_settings_end_with_the_message_of_the_extender(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("SLURM_EXTENDER_SLURM_TOKEN_FILE", raising=False)
    with pytest.raises(SystemExit) as end:
        command.run(Output.TABLE, 5.0)
    assert end.value.code == 2
    assert "SLURM_EXTENDER_SLURM_TOKEN_FILE" in capsys.readouterr().err
