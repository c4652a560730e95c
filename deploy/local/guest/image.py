"""The guest's disk: the root file system with the kubelet, container images, and the packages of the
node agent. The disk is never changed: QEMU keeps the guest's writes in a separate file."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from deploy.local.guest import agent, oci
from deploy.local.guest.disk import write_disk
from deploy.local.guest.store import store_disk
from deploy.local.guest.tree import TOOLS, compile_python, guest_tree, kernel_of, python_of
from deploy.local.programs.cache import build_once, cache_folder, recipe_hash
from deploy.local.programs.debian import install, run
from deploy.local.programs.kubernetes_binaries import kubelet
from deploy.local.programs.services_binary import SERVICES_NAMES, services_binary
from deploy.local.progress import Report
from deploy.local.spec import DEFAULT_RELEASE

OURS: Final = "/opt/guest"
"""Folder in the guest with all files that do not come from Debian's packages."""
PACKAGES: Final = f"{OURS}/packages"
"""The Python packages, in the guest."""
_CONTAINERD: Final = ("containerd", "containerd-shim-runc-v2", "ctr", "runc")
"""Programs that may come from the newest Debian suite. They also run with the libc of an older suite."""
_INSIDE: Final = Path(__file__).with_name("inside")


@dataclass(frozen=True, slots=True)
class GuestImage:
    """Paths of the kernel, of the disk, and of a second disk with containerd's images. The last path
    is "" if there is no second disk."""

    kernel: str
    disk: str
    store: str = ""


def guest_image(
    release: str,
    archives: Sequence[str],
    report: Report,
    *,
    services: bool = False,
    newest_containerd: bool = False,
) -> GuestImage:
    """Returns the files of a guest with a release of Slurm, and with the container images in `archives`.

    With `services`, the guest also has the programs for Services. With `newest_containerd`, the guest
    has the containerd of the newest Debian. Builds files that this machine lacks, and installs on this
    machine the programs that boot the guest. Raises ClusterError.
    """
    install(TOOLS)
    tree = guest_tree(release, report)
    newest = guest_tree(DEFAULT_RELEASE, report) if newest_containerd else tree
    programs = {"kubelet": kubelet(report)}
    if services:
        programs |= dict.fromkeys(SERVICES_NAMES, services_binary(report))
    packages = agent.agent_packages(python_of(tree), report)

    def build(place: Path) -> None:
        report("writing the guest's disk (about 20 s)")
        place.mkdir()
        with TemporaryDirectory(prefix="slurm-extender-guest-") as scratch:
            root = Path(scratch) / "root"
            run(["cp", "--archive", str(tree), str(root)])
            for name in _CONTAINERD:
                shutil.copy(newest / "usr/bin" / name, root / "usr/bin" / name)
            _add_ours(root, programs, packages)
            shutil.copy(kernel_of(tree), place / "vmlinuz")
            write_disk(root, place / "disk.img")

    sources = [Path(__file__), Path(oci.__file__), *sorted(_INSIDE.iterdir())]
    recipe = [path.read_bytes() for path in sources if path.is_file()]
    made_from = [str(path).encode() for path in (tree, newest, *programs.values(), packages)]
    place = cache_folder() / f"guest-disk-{release}-{recipe_hash(*recipe, *made_from)}"
    build_once(place, build, report)
    store = str(store_disk(tree, list(map(Path, archives)), report)) if archives else ""
    return GuestImage(kernel=str(place / "vmlinuz"), disk=str(place / "disk.img"), store=store)


def _add_ours(root: Path, programs: Mapping[str, Path], packages: Path) -> None:
    ours = root / OURS.removeprefix("/")
    ours.mkdir()
    for name in ("init", "prepare", "runner.py", "gateway.py"):
        shutil.copy(_INSIDE / name, ours)
    units = root / "etc/systemd/system"
    shutil.copy(_INSIDE / "guest.service", units)
    (units / "multi-user.target.wants").mkdir(exist_ok=True)
    (units / "multi-user.target.wants/guest.service").symlink_to("../guest.service")
    (units / "default.target").unlink(missing_ok=True)
    (units / "default.target").symlink_to("/usr/lib/systemd/system/multi-user.target")
    for name, program in programs.items():
        shutil.copy(program, ours)
        if name != program.name:  # a single program with several names
            (ours / name).symlink_to(program.name)
    applets = run(["chroot", str(root), "/usr/bin/busybox", "--list"]).split()
    oci.write_images(ours / "images.tar", root / "usr/bin/busybox", applets)
    shutil.copytree(packages, root / PACKAGES.removeprefix("/"))
    compile_python(root, OURS)
