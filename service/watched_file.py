"""Detects changes of a file: by a rename, by a link, or in place."""

from pathlib import Path

Stamp = tuple[int, int, int]


def stamp(path: Path) -> Stamp:
    """Returns a file's time of change, size and identity, after links: a ConfigMap changes by a link to
    another folder. Raises OSError."""
    stat = path.stat()
    return stat.st_mtime_ns, stat.st_size, stat.st_ino
