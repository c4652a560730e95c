"""A disk with a file system that has what is in a folder."""

from pathlib import Path
from typing import Final

from deploy.local.programs.debian import find_tool, run

_SIZE: Final = "4G"  # sparse
_FEATURES: Final = ("-O", "^has_journal", "-E", "lazy_itable_init=1")


def write_disk(root: Path, disk: Path) -> None:
    """Writes it; mke2fs is installed. Raises ClusterError."""
    mke2fs = find_tool("mke2fs")
    assert mke2fs is not None
    run([mke2fs, "-q", "-t", "ext4", *_FEATURES, "-d", str(root), str(disk), _SIZE])
