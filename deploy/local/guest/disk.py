"""Writes a disk with a file system from the content of a folder."""

from pathlib import Path
from typing import Final

from deploy.local.programs.debian import find_tool, run

_SIZE: Final = "4G"  # sparse
_FEATURES: Final = ("-O", "^has_journal", "-E", "lazy_itable_init=1")


def write_disk(root: Path, disk: Path) -> None:
    """Writes the disk. mke2fs must be installed. Raises ClusterError."""
    mke2fs = find_tool("mke2fs")
    assert mke2fs is not None
    run([mke2fs, "-q", "-t", "ext4", *_FEATURES, "-d", str(root), str(disk), _SIZE])
