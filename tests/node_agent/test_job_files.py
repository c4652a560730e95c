"""Tests of the job files of dcgm-exporter, with a reader that reads as dcgm-exporter does."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from itertools import cycle
from typing import TYPE_CHECKING

import pytest

from node_agent.reporting.job_files import JobFiles

if TYPE_CHECKING:
    from pathlib import Path

_READER = r"""
import json, os, re, sys
folder, least, different = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
names, contents, reads = set(), set(), 0
while reads < least or (len(contents) < different and reads < 50 * least):
    reads += 1
    listed = os.listdir(folder)
    names.update(listed)
    for name in listed:
        if re.fullmatch(r"\d+(\.\d+)?", name, re.ASCII):
            with open(os.path.join(folder, name)) as file:
                contents.add((name, file.read()))
print(json.dumps([sorted(names), sorted(contents)]))
"""
"""Script that reads all job files at least `least` times. The script continues until `different`
contents were read, but reads at most 50 times `least`. A file that disappears after the listing is an
error."""
ONE, TWO, THREE = 40_000_001, 40_000_002, 40_000_003


@pytest.fixture
def files(tmp_path: Path) -> JobFiles:
    return JobFiles(tmp_path)


def lines(folder: Path) -> dict[str, list[str]]:
    return {file.name: file.read_text().splitlines() for file in folder.iterdir() if file.is_file()}


@pytest.mark.parametrize("reads", [500, pytest.param(10_000, marks=pytest.mark.real)])
def test_each_read_during_changes_succeeds(files: JobFiles, tmp_path: Path, reads: int) -> None:
    changes = cycle(
        ({"0": [ONE], "3.7": [TWO]}, {"0": [THREE], "3.7": []}, {"0": [ONE, TWO], "3.7": [ONE]})
    )
    alive = ONE, TWO, THREE
    files.write(next(changes), alive)
    argv = [sys.executable, "-c", _READER, str(tmp_path), str(reads), "6"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as reader:
        while reader.poll() is None:
            files.write(next(changes), alive)
        told, errors = reader.communicate()
    assert reader.returncode == 0, errors
    names, contents = json.loads(told)
    assert names == [".slurm-extender", "0", "3.7"]
    assert {name: {text for at, text in contents if at == name} for name in ("0", "3.7")} == {
        "0": {f"{ONE}\n", f"{THREE}\n", f"{ONE}\n{TWO}\n"},
        "3.7": {f"{TWO}\n", "", f"{ONE}\n"},
    }


def test_file_of_a_device_without_a_job_stays_and_is_empty(files: JobFiles, tmp_path: Path) -> None:
    files.write({"0": [ONE], "1": []}, [ONE])
    assert lines(tmp_path) == {"0": [str(ONE)]}
    files.write({"0": [], "1": []}, [])
    assert lines(tmp_path) == {"0": []}


def test_lines_of_other_programs_stay(files: JobFiles, tmp_path: Path) -> None:
    (tmp_path / "0").write_text("4711\n")
    (tmp_path / "1").write_text("4712")
    files.write({"0": [ONE], "1": []}, [ONE])
    assert lines(tmp_path) == {"0": ["4711", str(ONE)], "1": ["4712"]}
    files.write({"0": [], "1": []}, [])
    assert lines(tmp_path) == {"0": ["4711"], "1": ["4712"]}


def test_agent_removes_a_prologs_line_for_the_job_of_a_pod(files: JobFiles, tmp_path: Path) -> None:
    """Slurm runs no Epilog for an external job, so the agent must remove the line."""
    (tmp_path / "0").write_text(f"{ONE}\n")
    files.write({"0": [ONE]}, [ONE])
    files.write({"0": []}, [])
    assert lines(tmp_path) == {"0": []}


def test_file_that_another_program_emptied_or_removed_is_written_again(
    files: JobFiles, tmp_path: Path
) -> None:
    files.write({"0": [ONE], "1": [TWO]}, [ONE, TWO])
    (tmp_path / "0").write_text("")
    (tmp_path / "1").unlink()
    files.write({"0": [ONE], "1": [TWO]}, [ONE, TWO])
    assert lines(tmp_path) == {"0": [str(ONE)], "1": [str(TWO)]}


def test_next_agent_removes_the_lines_of_ended_jobs(files: JobFiles, tmp_path: Path) -> None:
    files.write({"0": [ONE], "1": [TWO]}, [ONE, TWO])
    JobFiles(tmp_path).write({"0": [THREE], "1": []}, [THREE])
    assert lines(tmp_path) == {"0": [str(THREE)], "1": []}


def test_next_agent_knows_lines_of_an_agent_that_ended_during_a_write(
    files: JobFiles, tmp_path: Path
) -> None:
    (tmp_path / "1").mkdir()
    with pytest.raises(IsADirectoryError):
        files.write({"0": [ONE], "1": [ONE]}, [ONE])
    assert lines(tmp_path) == {"0": [str(ONE)]}
    (tmp_path / "1").rmdir()
    JobFiles(tmp_path).write({"0": [], "1": []}, [])
    assert lines(tmp_path) == {"0": []}


def test_file_of_an_unknown_device_keeps_its_job_until_the_job_ends(
    files: JobFiles, tmp_path: Path
) -> None:
    files.write({"0": [ONE]}, [ONE])
    files.write({}, [ONE])
    assert lines(tmp_path) == {"0": [str(ONE)]}
    files.write({}, [TWO])
    assert lines(tmp_path) == {"0": []}


def test_locked_folder_is_an_error_that_names_the_folder(files: JobFiles, tmp_path: Path) -> None:
    prolog = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(prolog, fcntl.LOCK_EX)
    with pytest.raises(BlockingIOError, match=f"locked by another program: '{tmp_path}'"):
        files.write({"0": [ONE]}, [ONE])
    assert lines(tmp_path) == {}
    os.close(prolog)
    files.write({"0": [ONE]}, [ONE])
    assert lines(tmp_path) == {"0": [str(ONE)]}


@pytest.mark.parametrize("damage", ["", "[]", '{"0": 7}', '{"../0": [7]}'])
def test_damaged_record_is_an_error_that_names_the_record(
    files: JobFiles, tmp_path: Path, damage: str
) -> None:
    files.write({"0": [ONE]}, [ONE])
    record = tmp_path / ".slurm-extender" / "lines.json"
    record.write_text(damage)
    with pytest.raises(ValueError, match="remove it, and the lines of ended jobs"):
        files.write({"0": []}, [])
    assert lines(tmp_path) == {"0": [str(ONE)]}
