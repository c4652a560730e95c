"""Detects changes of a file: by a rename, by a link, or in place."""

from pathlib import Path

Stamp = tuple[int, int, int]


def stamp(path: Path) -> Stamp:
    """Follows links, and returns the target's time of change, size and identity. A ConfigMap changes
    when a link points to another folder. Raises OSError."""
    stat = path.stat()
    return stat.st_mtime_ns, stat.st_size, stat.st_ino
