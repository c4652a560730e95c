"""Builds programs from the Go module in a folder."""

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deploy.local.errors import ClusterError
from deploy.local.progress import Report, heartbeat

STRIPPED = "-s -w"
"""Linker flags that leave out the data for debuggers, which would be a third of the file."""
_NO_DWARF: Final = "-gcflags=all=-dwarf=false"
"""Compiler flag that leaves out the data for debuggers. STRIPPED drops this data anyway, but the flag
saves a seventh of the build's CPU time. The programs are the same with and without the flag, so the flag
is not part of the hash in the cache's path."""
_COLLECT_LATE: Final = {"GOGC": "400", "GOMEMLIMIT": "2GiB"}
"""Settings of Go's runtime for the compiler and the linker. Up to 2 GiB of memory, garbage collection is
less frequent. This saves an eighth of the build's CPU time."""
_FILES: Final = "{{.ImportPath}}\t{{.Dir}}{{range .GoFiles}}\t{{.}}{{end}}"
_LINKED_SHARE: Final = 0.08
"""Share of the build's time that the linker needs, after all packages are compiled."""


@dataclass(frozen=True, slots=True)
class GoProgram:
    """A package of the module in `folder`, as a program."""

    folder: Path
    package: str = "."
    linker_flags: str = STRIPPED

    def sources(self, *names: str) -> Sequence[bytes]:
        """Returns the contents of the source files, which identify a build in the cache."""
        return [(self.folder / name).read_bytes() for name in ("go.mod", "go.sum", *names)]

    def build(self, output: Path, report: Report) -> None:
        """Fetches the modules, and compiles the program into `output`. Raises ClusterError with Go's
        output."""
        with heartbeat(report, lambda: "fetching the Go modules"):
            sizes = self._sizes()
        began = time.monotonic()
        flags = ["-v", _NO_DWARF, "-ldflags", self.linker_flags]
        command = ["go", "build", *flags, "-o", str(output), self.package]
        compiled: list[str] = []
        environment = _COLLECT_LATE | os.environ
        with subprocess.Popen(
            command, cwd=self.folder, stderr=subprocess.PIPE, text=True, env=environment
        ) as build:
            assert build.stderr is not None
            with heartbeat(report, lambda: progress(compiled, sizes, time.monotonic() - began)):
                compiled.extend(build.stderr)  # line by line, during the build
        if build.returncode != 0:
            raise ClusterError("go build failed:\n" + "".join(compiled[-20:]))

    def _sizes(self) -> Mapping[str, int]:
        """Returns the size of each package's sources. The build time of a package grows with the
        size."""
        listed = self._go("list", "-deps", "-f", _FILES, self.package).splitlines()
        sizes = {}
        for line in listed:
            name, folder, *files = line.split("\t")
            sizes[name] = sum(Path(folder, each).stat().st_size for each in files)
        return sizes

    def _go(self, *arguments: str) -> str:
        done = subprocess.run(
            ["go", *arguments], cwd=self.folder, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise ClusterError(f"go {arguments[0]} failed:\n{done.stderr[-2000:]}")
        return done.stdout


def progress(compiled: Sequence[str], sizes: Mapping[str, int], elapsed_s: float) -> str:
    """Returns the progress of a build, and the remaining time at the same pace. `compiled` are the
    lines of `go build -v`. The build may end earlier, because Go does not compile packages that are
    already in Go's own cache."""
    done = sum(sizes.get(line.strip(), 0) for line in compiled)
    text = f"compiled {len(compiled)} of at most {len(sizes)} packages"
    if not done:
        return text
    left_s = elapsed_s * (sum(sizes.values()) / done / (1 - _LINKED_SHARE) - 1)
    return f"{text}, about {max(1, round(left_s / 60))} min left"
