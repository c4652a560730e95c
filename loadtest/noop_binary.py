"""The no-op extender of ./noop as a program: built once for each version of it and of Go."""

import os
import subprocess
from pathlib import Path
from typing import Final

from deploy.local.cache import build_once, cache_folder, recipe_hash
from deploy.local.errors import ClusterError, MissingPrerequisitesError
from deploy.local.progress import Report

_SOURCE: Final = Path(__file__).with_name("noop")
_FILES: Final = ("go.mod", "main.go")


def noop_binary(report: Report) -> Path:
    """Where the program is. The first call on a machine builds it, in a few seconds."""
    recipe = recipe_hash(*((_SOURCE / name).read_bytes() for name in _FILES), _go("env", "GOVERSION"))
    return build_once(cache_folder() / f"noop-{os.uname().machine}-{recipe}", _build, report)


def _build(place: Path) -> None:
    _go("build", "-o", str(place), ".")


def _go(*arguments: str) -> bytes:
    # GOTOOLCHAIN=local: the Go that is installed, not one that it might fetch.
    environment = {**os.environ, "GOTOOLCHAIN": "local"}
    try:
        done = subprocess.run(
            ["go", *arguments], cwd=_SOURCE, env=environment, capture_output=True, check=False
        )
    except FileNotFoundError:
        raise MissingPrerequisitesError(["Go is needed to build the no-op extender."]) from None
    if done.returncode != 0:
        raise ClusterError(f"go {arguments[0]} failed:\n{done.stderr.decode()[-2000:]}")
    return done.stdout
