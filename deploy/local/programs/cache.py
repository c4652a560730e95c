"""Keeps results of builds in the user's cache folder. The path of a result contains a version, and
usually a hash of all inputs of the build. So a changed input causes a new build."""

import fcntl
import hashlib
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from deploy.local.progress import Report


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "slurm-extender"


def trees_folder() -> Path:
    """Returns the folder of unpacked Debian packages: SLURM_TREES if set, as in CI, otherwise the cache
    folder. Nothing compares the files in this folder with a checksum."""
    own = os.environ.get("SLURM_TREES")
    return Path(own) if own else cache_folder()


def recipe_hash(*parts: bytes) -> str:
    """Returns a short hash of all inputs of a build, for the path of the result in the cache. The same
    inputs always give the same hash."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(hashlib.sha256(part).digest())
    return digest.hexdigest()[:12]


def build_once(place: Path, build: Callable[[Path], None], report: Report) -> Path:
    """Builds `place` if `place` does not exist, and returns its path. `build` writes the result to a
    path beside `place`. The finished result is moved to `place`. After an error, the unfinished result
    is removed."""
    if place.exists():
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    with _locked(place.with_name(place.name + ".lock"), report):
        if not place.exists():
            unfinished = place.with_name(place.name + ".unfinished")
            _remove(unfinished)
            try:
                build(unfinished)
            except BaseException:
                _remove(unfinished)
                raise
            unfinished.rename(place)
    return place


def _remove(folder: Path) -> None:
    # Stays on one file system: a killed build may have left a mount in a tree.
    subprocess.run(["rm", "-rf", "--one-file-system", str(folder)], check=True)


@contextmanager
def _locked(path: Path, report: Report) -> Iterator[None]:
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report(f"waiting: another process builds {path.stem}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
