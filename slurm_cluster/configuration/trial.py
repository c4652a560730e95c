"""Tries a configuration in a temporary slurmctld, and returns the errors of this slurmctld.

slurmctld cannot test a configuration (no option `-t`). Many wrong values only add a line to the
log; other wrong values end slurmctld. So the trial starts a slurmctld with the files of
`trial_conf`, and waits until the slurmctld serves or ends.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from tempfile import TemporaryDirectory
from typing import Final

from slurm_cluster.configuration import slurmd_files
from slurm_cluster.configuration.folders import File, write
from slurm_cluster.configuration.slurm_conf import SlurmConf
from slurm_cluster.configuration.topology_nodes import joining, suspect
from slurm_cluster.configuration.trial_conf import LOOPBACK, Place, trial_text, untried

_SERVES: Final = "Running as primary controller"
_SETTLES_S: Final = 0.5
"""Time to wait for further errors after slurmctld serves."""
_AFTER_ERROR_S: Final = 2.0
"""Time to wait for further errors after the first error. The trial does not wait longer, because
slurmctld searches a minute for a missing file."""
_WITHIN_S: Final = 60.0
_ENDS_S: Final = 0.5
"""Maximum time between the last line of a process and the end of the process."""
_MOST: Final = 20
_LOUD: Final = re.compile(r"(?:^|[\s\]])(?:error|fatal): (?P<words>.*)")
OF_THE_PLACE: Final = (
    r"High latency for 1000 calls to gettimeofday\(\).*",  # a busy machine
    r"read_slurm_conf: default partition not set\.",  # possibly on purpose
    r"Could not open \w+ state file .*: No such file or directory",  # 24.11, before the first job
    r"Unable to set keepalive .*",  # 24.11, now and then, with any configuration
    r"No fed_mgr state file .* to recover",
    r"NOTE: Trying backup (\w+ )?state save file\..*",
    r"Sending PersistInit msg: Connection refused",  # slurmdbd is away, on purpose
    r"Association database appears down, reading from state files\.",
    r"\w*persist_conn\w*: failed to open persistent connection to host:127\.0\.0\.1:.*",
)
"""Errors whose cause is not in the configuration. The cause is the machine, a new state, or a missing
slurmdbd."""
_WITHOUT_DATABASE: Final = (
    r".* can only be used with SlurmDBD.*",
    r"Job accounting information gathered, but not stored",
)
"""Errors that come only from the absence of slurmdbd in a trial."""
FROM_STATE: Final = ("assoc_mgr_state", "clustername", "last_tres")
"""Files of the running state that the trial copies: slurmdbd's objects, and clustername."""
_KEYS: Final = ("*.key", "*.jwks")
_NEEDED_FROM_STATE: Final = frozenset(FROM_STATE)


@dataclass(frozen=True, slots=True)
class Trial:
    """Tries configurations in a temporary slurmctld."""

    running: Path
    """Folder of the running configuration."""
    state: Path
    """StateSaveLocation of the running slurmctld."""
    accepted: Sequence[str] = ()
    """Regular expressions of ignored errors."""
    checks_slurmd: bool = True
    """True if errors in slurmd's files count as errors. False for a configuration that slurmctld has
    already accepted, because errors in slurmd's files do not stop slurmctld."""
    program: str = "slurmctld"

    def problems(
        self, files: Mapping[str, File], conf: SlurmConf, known_tres: frozenset[str]
    ) -> list[str]:
        """Returns the errors of a configuration, or an empty list. If this package finds no error
        itself, returns the errors that a temporary slurmctld logs."""
        host = socket.gethostname()
        own = [*untried(conf, host), *(slurmd_files.wrong(files, conf) if self.checks_slurmd else ())]
        if wrong := [words for words in own if not _matches(self.accepted, words)]:
            return wrong
        with TemporaryDirectory(prefix="slurm-trial-") as folder, _ports() as (port, closed):
            state = [name for name in FROM_STATE if (self.state / name).is_file()]
            place = Place(
                folder=Path(folder),
                host=host.partition(".")[0],
                port=port,
                closed_port=closed,
                running=self.running,
                with_database=set(state) >= _NEEDED_FROM_STATE and _has_database(conf),
                known_tres=known_tres,
                joining=joining(files, conf),
                slurm_user="root" if os.geteuid() == 0 else "",
            )
            self._prepare(place, files, conf, state)
            apart = _WITHOUT_DATABASE if _has_database(conf) and not place.with_database else ()
            return [_of_wanted(words, place) for words in self._errors(place, apart, suspect(files))]

    def _prepare(
        self, place: Place, files: Mapping[str, File], conf: SlurmConf, state: Sequence[str]
    ) -> None:
        place.etc.mkdir()
        place.state.mkdir(mode=0o700)
        for name in state:
            shutil.copy(self.state / name, place.state / name)
        write(place.etc, {**self._keys(), **files})
        text = trial_text(conf, place)
        write(place.etc, {"slurm.conf": File(text.encode())})

    def _keys(self) -> dict[str, File]:
        """Returns the keys in the folder of the running configuration."""
        found = (path for pattern in _KEYS for path in self.running.glob(pattern))
        return {path.name: File(path.read_bytes(), secret=True) for path in found}

    def _errors(self, place: Place, apart: Sequence[str], cause: str) -> list[str]:
        """Returns the errors of slurmctld. `cause` is the probable cause if a signal ends slurmctld."""
        command = [self.program, "-D", "-f", str(place.etc / "slurm.conf")]
        environment = {**os.environ, "SLURM_CONF": str(place.etc / "slurm.conf")}
        process = subprocess.Popen(  # noqa: S603 -- slurmctld, without a shell
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            verdict = _Verdict(process, (*self.accepted, *apart), cause)
            return list(dict.fromkeys(verdict.problems()))[:_MOST]
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


class _Verdict:
    """Collects the errors of one slurmctld until slurmctld serves or ends."""

    def __init__(self, process: subprocess.Popen[bytes], accepted: Sequence[str], cause: str) -> None:
        self._process = process
        self._cause = f"{cause}: " if cause else ""
        self._accepted = (*OF_THE_PLACE, *accepted)
        self._serves = False
        self._deadline = time.monotonic() + _WITHIN_S

    def problems(self) -> Iterator[str]:
        last, has_error = "", False
        for line in self._lines():
            last = line or last
            self._serves = self._serves or _SERVES in line
            found = _LOUD.search(line)
            if found and not _matches(self._accepted, found["words"]):
                if not has_error:
                    has_error = True
                    self._hurry(_AFTER_ERROR_S)
                yield found["words"]
        if not self._serves and not has_error:
            yield f"{self._end()}; last line of its log: {last}"

    def _end(self) -> str:
        """Returns a message: either how slurmctld ended, or that slurmctld does not serve."""
        try:
            status = self._process.wait(_ENDS_S)
        except subprocess.TimeoutExpired:
            return "slurmctld does not serve"
        return (
            f"{self._cause}{signal.Signals(-status).name} ended slurmctld"
            if status < 0
            else "slurmctld ended"
        )

    def _lines(self) -> Iterator[str]:
        """Yields the lines of slurmctld's log. Stops when slurmctld has served for _SETTLES_S, when
        slurmctld ends, or at the deadline."""
        rest, settled = b"", False
        assert self._process.stderr is not None
        with DefaultSelector() as selector:
            selector.register(self._process.stderr, EVENT_READ)
            while (left := self._deadline - time.monotonic()) > 0 and selector.select(left):
                piece = os.read(self._process.stderr.fileno(), 1 << 16)
                if not piece:
                    break
                *lines, rest = (rest + piece).split(b"\n")
                yield from (line.decode(errors="replace") for line in lines)
                if self._serves and not settled:
                    settled = True
                    self._hurry(_SETTLES_S)
        yield rest.decode(errors="replace")

    def _hurry(self, seconds: float) -> None:
        self._deadline = min(self._deadline, time.monotonic() + seconds)


def _matches(accepted: Iterable[str], words: str) -> bool:
    return any(re.fullmatch(each, words) for each in accepted)


def _of_wanted(words: str, place: Place) -> str:
    """Turns a message about the trial's files into a message about the wanted files. Line numbers are
    removed, because the same line has different numbers in the two files."""
    return re.sub(r"(?<=slurm\.conf) line \d+", "", words.replace(str(place.etc), str(place.running)))


def _has_database(conf: SlurmConf) -> bool:
    return "accountingstoragetype" in conf.settings()


@contextmanager
def _ports() -> Iterator[tuple[int, int]]:
    """Yields a free port of loopback, and a bound port without a listener."""
    with socket.socket() as taken:
        taken.bind((LOOPBACK, 0))
        with socket.socket() as free:
            free.bind((LOOPBACK, 0))
            port = free.getsockname()[1]
        yield port, taken.getsockname()[1]
