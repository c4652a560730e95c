"""Makes a disk with images for the guest's containerd.

The images are imported and unpacked on the host, because the emulated guest would take much longer. The
guest's own containerd does the import on the host.
"""

import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from deploy.local.errors import ClusterError
from deploy.local.guest.disk import write_disk
from deploy.local.programs.cache import build_once, cache_folder, recipe_hash
from deploy.local.programs.debian import run
from deploy.local.progress import Report, heartbeat

# The disabled plugins would use the host's container runtimes, or look for them.
_CONFIGURATION: Final = """version = 2
root = '{folder}/root'
state = '{folder}/state'
disabled_plugins = [
  'io.containerd.grpc.v1.cri',
  'io.containerd.cri.v1.images',
  'io.containerd.cri.v1.runtime',
  'io.containerd.nri.v1.nri',
]
[grpc]
  address = '{folder}/containerd.sock'
"""
_STARTS_WITHIN_S: Final = 30.0


def store_disk(tree: Path, archives: Sequence[Path], report: Report) -> Path:
    """Returns a disk with the images of these archives, for the containerd of the guest's tree.
    Creates the disk if this machine lacks the disk. Raises ClusterError."""

    def build(place: Path) -> None:
        report("importing the images for the guest (about half a minute)")
        with heartbeat(report, lambda: "still importing"), TemporaryDirectory() as scratch:
            folder = Path(scratch)
            with _containerd(tree, folder):
                for archive in archives:
                    client = ("ctr", "--address", str(folder / "containerd.sock"))
                    run(_program(tree, *client, "-n", "k8s.io", "images", "import", str(archive)))
            write_disk(folder / "root", place)

    # An archive's path identifies the archive's content, because the path contains a hash of the image's
    # sources.
    key = recipe_hash(
        Path(__file__).read_bytes(), str(tree).encode(), *(str(each).encode() for each in archives)
    )
    return build_once(cache_folder() / f"guest-store-{key}.img", build, report)


@contextmanager
def _containerd(tree: Path, folder: Path) -> Iterator[None]:
    """Runs containerd until the block ends. No other process sees containerd's mounts."""
    configuration = folder / "config.toml"
    configuration.write_text(_CONFIGURATION.format(folder=folder))
    command = _program(tree, "containerd", "--config", str(configuration))
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(["unshare", "--mount", *command], stdout=log, stderr=log) as process,
    ):
        try:
            _await(folder / "containerd.sock", process, folder / "log")
            yield
        finally:
            process.terminate()


def _await(socket: Path, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _STARTS_WITHIN_S
    while not socket.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise ClusterError(f"containerd does not serve:\n{log.read_text()[-2000:]}")
        time.sleep(0.05)


def _program(tree: Path, name: str, *arguments: str) -> list[str]:
    """Returns a command that runs a program of the tree with the tree's libraries, without a chroot."""
    (loader,) = tree.glob("lib64/ld-linux-*")
    (libraries,) = tree.glob("usr/lib/*-linux-gnu")
    return [str(loader), "--library-path", str(libraries), str(tree / "usr/bin" / name), *arguments]
