"""Job files for dcgm-exporter. Each device has a file with the ids of the jobs that have the device.

dcgm-exporter (`--hpc-job-mapping-dir`, `DCGM_HPC_JOB_MAPPING_DIR`) lists the folder at each scrape, and
labels the metrics of a device with `hpc_job`. The exporter's source (4.5.3-4.8.2) shows:

- The name of a file is the number of the GPU, or the numbers of the GPU and of the MIG instance: "3.7".
  The exporter skips other names, and folders.
- Each line is a job. The exporter copies the line into its answer without quoting.
- A file without a line means a GPU without a job.
- If a listed file is gone when the exporter opens the file, the whole scrape fails.

So the agent renames each file into place, and removes no file.

Other programs, such as a Prolog, write ids of native jobs into the same files. So the agent adds and
removes only its own lines. For this, the agent locks the folder (flock), and keeps a record of its lines
for the next agent.
"""

import fcntl
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import orjson
from pydantic import StringConstraints, TypeAdapter, ValidationError

_FOLDER: Final = ".slurm-extender"
"""Name of the folder for the record, and for files that are still incomplete."""
_RECORD: Final = "lines.json"

_Jobs = Mapping[str, Collection[int]]
"""Ids of jobs by the name of the file."""
_Name = Annotated[str, StringConstraints(pattern=r"^[0-9]+(\.[0-9]+)?$")]
_RECORDED: Final = TypeAdapter(dict[_Name, list[int]])


class JobFiles:
    """The job files in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._own = folder, folder / _FOLDER

    def write(self, jobs: _Jobs, alive: Collection[int]) -> None:
        """Writes the jobs of all known devices. Parameter `alive` has the ids of the jobs of all Pods
        here. A device may be unknown for a moment. In the file of such a device, the agent's lines stay
        while their jobs are alive. Raises OSError, also if another program holds the lock. Raises
        ValueError if the record is unreadable."""
        self._own.mkdir(parents=True, exist_ok=True)
        with self._locked():
            self._write(jobs, alive)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        folder = os.open(self._folder, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        except BlockingIOError as error:
            raise BlockingIOError(error.errno, "locked by another program", str(self._folder)) from None
        finally:
            os.close(folder)

    def _write(self, jobs: _Jobs, alive: Collection[int]) -> None:
        before = self._recorded()
        wanted = {name: {*lines} & {*alive} for name, lines in before.items()}
        wanted |= {name: {*of} for name, of in jobs.items()}
        both = {name: of | {*before.get(name, ())} for name, of in wanted.items()}
        self._record(both, before)  # if the agent ends before the next write, the record has every line
        for name, of in wanted.items():
            self._renew(name, own=both[name], wanted=of)
        self._record(wanted, both)

    def _renew(self, name: str, *, own: Collection[int], wanted: Collection[int]) -> None:
        """Replaces the agent's own lines in a file. A device that never had a job gets no file."""
        file = self._folder / name
        try:
            text = file.read_text(errors="surrogateescape")
        except FileNotFoundError:
            text = ""
        before, mine = text.splitlines(), {str(job) for job in own}
        now = [line for line in before if line not in mine] + [str(job) for job in sorted(wanted)]
        if now != before:
            lines = "".join(f"{line}\n" for line in now)
            self._put(file, lines.encode(errors="surrogateescape"))

    def _recorded(self) -> _Jobs:
        file = self._own / _RECORD
        try:
            return _RECORDED.validate_json(file.read_bytes())
        except FileNotFoundError:
            return {}
        except ValidationError as error:
            raise ValueError(
                f"{file} is damaged: remove it, and the lines of ended jobs from the job files"
            ) from error

    def _record(self, lines: _Jobs, before: _Jobs) -> None:
        """Writes the record if the record has changed."""
        now, then = ({name: sorted(of) for name, of in each.items() if of} for each in (lines, before))
        if now != then:
            self._put(self._own / _RECORD, orjson.dumps(now))

    def _put(self, file: Path, content: bytes) -> None:
        """Replaces a file in one step. Readers see either the old or the new content, also after a loss
        of power."""
        new = self._own / f"{file.name}.new"
        with new.open("wb") as opened:
            opened.write(content)
            opened.flush()
            os.fsync(opened.fileno())
        new.replace(file)
