"""Programs that are built from the Go module of a folder."""

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from deploy.local.errors import ClusterError
from deploy.local.progress import Report, heartbeat

STRIPPED = "-s -w"
"""The linker's flags that leave out what only a debugger reads: a third of the file."""
_COMPILER = ("-gcflags=all=-dwarf=false",)
"""The linker drops debugging information; not making any saves the compiler a tenth of its time."""


@dataclass(frozen=True, slots=True)
class GoProgram:
    """A package of the module in `folder`, as a program."""

    folder: Path
    package: str = "."
    linker_flags: str = STRIPPED

    def sources(self, *names: str) -> Sequence[bytes]:
        """What its files say: by them a build is known again."""
        return [(self.folder / name).read_bytes() for name in ("go.mod", "go.sum", *names)]

    def build(self, output: Path, report: Report) -> None:
        """Fetches the modules, and compiles. Raises ClusterError with what Go said."""
        with heartbeat(report, lambda: "fetching the Go modules"):
            total = len(self._go("list", "-deps", self.package).splitlines())
        command = [
            "go",
            "build",
            "-v",
            *_COMPILER,
            "-ldflags",
            self.linker_flags,
            "-o",
            str(output),
            self.package,
        ]
        compiled: list[str] = []
        with subprocess.Popen(command, cwd=self.folder, stderr=subprocess.PIPE, text=True) as build:
            assert build.stderr is not None
            with heartbeat(report, lambda: f"compiled {len(compiled)} of at most {total} packages"):
                compiled.extend(build.stderr)  # as they come
        if build.returncode != 0:
            raise ClusterError("go build failed:\n" + "".join(compiled[-20:]))

    def _go(self, *arguments: str) -> str:
        done = subprocess.run(
            ["go", *arguments], cwd=self.folder, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise ClusterError(f"go {arguments[0]} failed:\n{done.stderr[-2000:]}")
        return done.stdout
