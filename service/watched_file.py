"""Tells whether a file has changed since it was last read: by a rename, by a link, or in place."""

from pathlib import Path

Stamp = tuple[int, int, int]


def stamp(path: Path) -> Stamp:
    """Returns what changes with a file: its time of change, its size and its identity. They are those of
    what a link leads to: a ConfigMap changes by a link to another folder. Raises OSError."""
    stat = path.stat()
    return stat.st_mtime_ns, stat.st_size, stat.st_ino
