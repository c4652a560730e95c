"""Runs real tests: side by side, and then each of those that keep both cores busy.

    python -m tests.real PATH...

Dozens of daemons share two cores there, whose timing no test can choose. What failed runs once more, on
clusters of its own with nothing beside them. What passes then is told as unsteady, for somebody to find
out why; what fails again, or more than FEW that failed at first, fails the run.
"""

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

FEW: Final = 3
# They wait for clusters more than they compute, so that two cores do for four of them at a time.
_SIDE_BY_SIDE: Final = ("-m", "real and not alone", "-n", "4", "--dist", "loadgroup")
_ALONE: Final = ("-m", "real and alone")


def run(options: Sequence[str], *, few: int = FEW) -> int:
    """Runs pytest, and once more what failed; returns the exit status: 0 where all passed in the end."""
    with tempfile.TemporaryDirectory() as cache:
        status = _pytest(*options, "--durations", "10", "-o", f"cache_dir={cache}")
        if status != 1:  # all passed, or pytest itself did not get through
            return status
        failed = _failed(Path(cache))
    if len(failed) > few:
        return status
    again = _pytest(*failed)
    if again == 0:
        sys.stderr.write(f"unsteady, passed at the second time: {' '.join(failed)}\n")
    return again


def _failed(cache: Path) -> list[str]:
    """The names of the tests, without the group that pytest-xdist adds."""
    names = json.loads((cache / "v/cache/lastfailed").read_text())
    return sorted({re.sub(r"@[^\]]*$", "", name) for name in names})


def _pytest(*options: str) -> int:
    return subprocess.run([sys.executable, "-m", "pytest", *options], check=False).returncode


if __name__ == "__main__":
    results = [run([*kind, *sys.argv[1:]]) for kind in (_SIDE_BY_SIDE, _ALONE)]
    sys.exit(any(results))  # -9 is one, too: pytest was killed
