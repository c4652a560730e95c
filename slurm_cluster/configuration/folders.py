"""Reads and writes configurations in folders. Each file is written atomically. `Kept` stores the last
configuration that slurmctld accepted."""

import os
import shutil
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

SLURM_CONF: Final = "slurm.conf"
_DATA: Final = "..data"
"""Link with which Kubernetes replaces all files of a ConfigMap at once (AtomicWriter)."""


@dataclass(frozen=True, slots=True)
class File:
    """A file's content and permissions."""

    content: bytes
    executable: bool = False
    secret: bool = False
    """True if only the file's owner may read the file."""

    @property
    def mode(self) -> int:
        return 0o600 if self.secret else 0o755 if self.executable else 0o644


Files = Mapping[str, File]
"""Files by their path in the folder."""


def read(folder: Path, *, secret: bool = False) -> dict[str, File]:
    """Returns the files of a folder and its subfolders. If the folder is missing, returns no files.
    Raises OSError."""
    at_once = folder / _DATA
    root = at_once.resolve() if at_once.exists() else folder
    paths = (path for path in sorted(root.rglob("*")) if path.is_file())
    names = {path: path.relative_to(root) for path in paths}
    return {
        str(name): File(path.read_bytes(), os.access(path, os.X_OK), secret)
        for path, name in names.items()
        if not any(part.startswith("..") for part in name.parts)
    }


def read_keys(folders: Iterable[Path]) -> dict[str, File]:
    """Returns the files of several folders with keys. Raises OSError."""
    return {name: file for folder in folders for name, file in read(folder, secret=True).items()}


def has(folder: Path, files: Files) -> bool:
    """Returns True if a folder has these files. The folder may have other files."""
    return all(
        (folder / name).is_file() and (folder / name).read_bytes() == file.content
        for name, file in files.items()
    )


def write(folder: Path, files: Files) -> None:
    """Writes files to a folder. slurm.conf is written last. Raises OSError."""
    for name in sorted(files, key=lambda each: (each == SLURM_CONF, each)):
        _replace(folder / name, files[name])


def remove(folder: Path, names: Collection[str]) -> None:
    """Removes files that are no longer wanted."""
    for name in names:
        (folder / name).unlink(missing_ok=True)


def digest(files: Files) -> str:
    """Returns a hash of the files. Equal files have equal hashes."""
    whole = sha256()
    for name, file in sorted(files.items()):
        whole.update(f"{name}\0{file.mode}\0{len(file.content)}\0".encode() + file.content)
    return whole.hexdigest()


class Kept:
    """The last configuration that slurmctld accepted, in a folder on a volume."""

    def __init__(self, folder: Path) -> None:
        self._good = folder / "good"
        self._new = folder / "new"
        self._before = folder / "before"

    @property
    def slurm_conf(self) -> Path:
        """Path of the kept slurm.conf. The file may be missing."""
        folder = self._good if (self._good / SLURM_CONF).is_file() else self._before
        return folder / SLURM_CONF

    def read(self) -> dict[str, File]:
        """Returns the kept files. Before the first accepted configuration, returns no files."""
        return read(self.slurm_conf.parent) if self.slurm_conf.is_file() else {}

    def keep(self, files: Files) -> None:
        """Replaces the kept files. If the program ends during the change, either the old or the new
        files remain."""
        shutil.rmtree(self._new, ignore_errors=True)
        self._new.mkdir(parents=True)
        write(self._new, files)
        shutil.rmtree(self._before, ignore_errors=True)
        if self._good.exists():
            self._good.rename(self._before)
        self._new.rename(self._good)


def _replace(path: Path, file: File) -> None:
    """Replaces a file if its content has changed. An unchanged file keeps its modification time, because
    slurmctld reloads job_submit.lua if this time changes."""
    if path.is_file() and path.read_bytes() == file.content:
        path.chmod(file.mode)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, file.mode), "wb") as written:
        written.write(file.content)
    new.chmod(file.mode)
    new.rename(path)
