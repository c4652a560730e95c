"""Unpacks Prometheus and promtool from Debian's package, and runs both programs on this machine.

Tests check the rules and dashboards of deploy/monitoring with these programs. The Debian suite is old on
purpose. Newer releases of Prometheus also accept the rules that an old release accepts. The old programs
run on every machine whose C library is as old, or newer.
"""

import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import yaml

from deploy.local.components import answers
from deploy.local.errors import ClusterError
from deploy.local.processes.ports import lease_ports
from deploy.local.processes.system_calls import die_with_parent
from deploy.local.programs import debian
from deploy.local.programs.cache import build_once, recipe_hash, trees_folder
from deploy.local.progress import Report, heartbeat, silent

_SUITE: Final = "bookworm"
_SERVER, _PROMTOOL = "prometheus", "promtool"
_READY_WITHIN_S: Final = 30.0
_POLL_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Prometheus:
    """The programs prometheus and promtool, in a folder."""

    folder: Path

    def promtool(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs promtool, and returns its output and its exit status."""
        command = [str(self.folder / _PROMTOOL), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    @contextmanager
    def serving(
        self, folder: Path, rules: Path, targets: Sequence[str], every_s: float = 1.0
    ) -> Iterator[str]:
        """Runs a Prometheus server until the block ends, and yields the server's address.

        Every `every_s` seconds, the server reads `targets` (such as "127.0.0.1:8080") and evaluates
        `rules`. The server keeps all files in `folder`. If this process ends, the server also ends.
        Raises ClusterError if the server does not serve.
        """
        (folder / "prometheus.yaml").write_text(_configuration(rules, targets, every_s))
        with closing(lease_ports([_SERVER])) as lease, (folder / "prometheus.log").open("wb") as log:
            address = f"127.0.0.1:{lease.ports[_SERVER]}"
            command = (
                str(self.folder / _SERVER),
                f"--config.file={folder / 'prometheus.yaml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address={address}",
                "--log.level=warn",
            )
            with subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent,  # noqa: PLW1509 -- no other thread holds a lock by then
            ) as process:
                try:
                    _await_ready(process, f"http://{address}/-/ready", folder / "prometheus.log")
                    yield f"http://{address}"
                finally:
                    process.kill()


def prometheus(report: Report = silent) -> Prometheus:
    """Returns the programs. The first call on a machine downloads the package and its dependencies (60
    MB). Raises ClusterError if Debian's current programs do not run on this machine."""

    def build(place: Path) -> None:
        report(f"unpacking Prometheus from Debian {_SUITE}, and trying it")
        place.mkdir()
        with (
            heartbeat(report, lambda: "still unpacking Prometheus"),
            TemporaryDirectory(prefix="slurm-extender-") as scratch,
        ):
            tree = Path(scratch) / "tree"
            debian.unpack(_SUITE, ["base-files", "prometheus"], tree)
            for program in (_SERVER, _PROMTOOL):
                shutil.copy2(tree / "usr/bin" / program, place)
                debian.run([str(place / program), "--version"])

    key = recipe_hash(*(Path(module).read_bytes() for module in (__file__, debian.__file__)))
    return Prometheus(build_once(trees_folder() / f"prometheus-{_SUITE}-{key}", build, report))


def _configuration(rules: Path, targets: Sequence[str], every_s: float) -> str:
    every = f"{int(1000 * every_s)}ms"
    configuration: dict[str, Any] = {
        "global": {"scrape_interval": every, "scrape_timeout": every, "evaluation_interval": every},
        "rule_files": [str(rules)],
        "scrape_configs": [{"job_name": "test", "static_configs": [{"targets": [*targets]}]}],
    }
    return yaml.safe_dump(configuration)


def _await_ready(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + _READY_WITHIN_S
    while not answers(url):
        if process.poll() is not None or time.monotonic() > deadline:
            raise ClusterError(f"Prometheus does not serve:\n{log.read_text()}")
        time.sleep(_POLL_S)
