"""Tests of the current policy. The policy follows the changes of the file. An invalid file leaves the
last valid policy in force."""

import asyncio
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from extender.policy.current import CurrentPolicy
from extender.policy.rules import OPEN, RESTRICTED
from service import current_file as module
from service.health import Health
from service.yaml_file import WrongFile

GOOD, OTHER, BAD = "preset: open\n", "preset: restricted\n", "preset: closed\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "policy.yaml"
    path.write_text(GOOD)
    return path


@pytest.fixture
def kept(file: Path) -> CurrentPolicy:
    return CurrentPolicy(file)


def look(kept: CurrentPolicy, file: Path) -> None:
    """Looks at the file twice, because a change takes effect at the second look."""
    for _ in range(2):
        kept.look(file)


def test_preset_applies_without_a_file_and_is_restricted_by_default() -> None:
    assert CurrentPolicy(None).policy == RESTRICTED
    assert CurrentPolicy(None, "open").policy == OPEN


async def test_policy_that_admits_no_pod_is_logged_at_the_start() -> None:
    with capture_logs() as logs:
        await CurrentPolicy(None).run(Health(), bool)
    assert [entry["event"] for entry in logs if entry["log_level"] == "warning"] == [
        "the policy lets no Pod run: set SLURM_EXTENDER_POLICY_FILE (docs/concepts/policy.md)"
    ]


def test_invalid_or_missing_file_is_an_error_at_the_start(file: Path) -> None:
    file.write_text(BAD)
    with pytest.raises(WrongFile, match="preset: must be restricted or open"):
        CurrentPolicy(file)
    with pytest.raises(WrongFile, match="cannot be read"):
        CurrentPolicy(file.with_name("absent"))


def test_changed_file_takes_effect(kept: CurrentPolicy, file: Path) -> None:
    assert kept.policy == OPEN
    changed = kept.changed
    file.write_text(OTHER)
    look(kept, file)
    assert kept.policy == RESTRICTED
    assert changed.is_set()
    assert not kept.changed.is_set()


def test_half_written_file_is_ignored_until_it_is_complete(kept: CurrentPolicy, file: Path) -> None:
    for text in ("p", "preset", "preset: restricted\nrules: [", OTHER):
        file.write_text(text)
        kept.look(file)
        assert (kept.policy, kept.problem) == (OPEN, None)
    kept.look(file)
    assert kept.policy == RESTRICTED


def test_file_with_the_same_rules_is_no_change(kept: CurrentPolicy, file: Path) -> None:
    before, changed = kept.policy, kept.changed
    file.write_text("# a word\n" + GOOD)
    look(kept, file)
    assert kept.policy is before
    assert not changed.is_set()


def test_changed_link_of_a_configmap_takes_effect(tmp_path: Path) -> None:
    """The link `..data` leads to the folder of the current version. The kubelet replaces the link
    atomically."""
    for version, text in (("v1", GOOD), ("v2", OTHER)):
        (tmp_path / version).mkdir()
        (tmp_path / version / "policy.yaml").write_text(text)
    (tmp_path / "..data").symlink_to("v1")
    file = tmp_path / "policy.yaml"
    file.symlink_to("..data/policy.yaml")
    kept = CurrentPolicy(file)
    (tmp_path / "..new").symlink_to("v2")
    (tmp_path / "..new").replace(tmp_path / "..data")
    look(kept, file)
    assert kept.policy == RESTRICTED
    (tmp_path / "..new").symlink_to("v1")
    (tmp_path / "..new").replace(tmp_path / "..data")
    look(kept, file)
    assert kept.policy == OPEN


def test_invalid_file_keeps_the_last_valid_policy(kept: CurrentPolicy, file: Path) -> None:
    file.write_text(BAD)
    look(kept, file)
    assert kept.policy == OPEN
    assert f"{file}:1: preset: must be restricted or open" in str(kept.problem)
    file.write_text(OTHER)
    look(kept, file)
    assert (kept.policy, kept.problem) == (RESTRICTED, None)


def test_problem_ends_after_an_invalid_file_is_reverted(kept: CurrentPolicy, file: Path) -> None:
    good = file.rename(file.with_name("kept"))
    file.write_text(BAD)
    look(kept, file)
    good.replace(file)
    look(kept, file)
    assert (kept.policy, kept.problem) == (OPEN, None)


def test_deleted_file_keeps_the_last_valid_policy(kept: CurrentPolicy, file: Path) -> None:
    gone = file.rename(file.with_name("gone"))
    kept.look(file)
    assert kept.policy == OPEN
    assert "no longer exists" in str(kept.problem)
    gone.rename(file)
    kept.look(file)
    assert kept.problem is None


def write(file: Path, text: str) -> None:
    file.write_text(text)


async def test_problem_of_the_file_reaches_probes_and_metrics_until_it_ends(
    kept: CurrentPolicy, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LOOK_S", 0.001)
    health, told = Health(), asyncio.Queue[bool]()
    task = asyncio.ensure_future(kept.run(health, told.put_nowait))
    try:
        with capture_logs() as logs:
            write(file, BAD)
            while await told.get():
                pass
            for _ in range(3):
                assert not await told.get()
        (line,) = (line for line in logs if line["log_level"] != "info")
        assert (line["log_level"], line["part"]) == ("error", "policy")
        assert line["error"].startswith("the last valid content stays in force: ")
        assert "policy.yaml:1" in str(health.problems())
        write(file, OTHER)
        while not await told.get():
            pass
        assert health.problems() == {}
        assert kept.policy == RESTRICTED
    finally:
        task.cancel()
