"""Keeps results of builds in the user's cache folder. A result is built once for each version and each
recipe."""

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
    """Returns the folder of Slurm's trees: SLURM_TREES if set, as in CI, otherwise the cache folder. The
    trees are not checked against a checksum."""
    own = os.environ.get("SLURM_TREES")
    return Path(own) if own else cache_folder()


def recipe_hash(*parts: bytes) -> str:
    """Returns a short hash, so that each recipe has a separate path in the cache. The same parts always
    give the same hash."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(hashlib.sha256(part).digest())
    return digest.hexdigest()[:12]


def build_once(place: Path, build: Callable[[Path], None], report: Report) -> Path:
    """Builds `place` if it does not exist, and returns its path. `build` gets a path beside `place`. The
    finished result is moved to `place`. After an error, the unfinished result is removed."""
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
