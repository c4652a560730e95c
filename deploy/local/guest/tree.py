"""The guest's root file system, of Debian's packages: a kernel, containerd, slurmd, Python."""

import re
from pathlib import Path
from typing import Final

from deploy.local.errors import ClusterError
from deploy.local.programs import debian
from deploy.local.programs.cache import build_once, recipe_hash, trees_folder
from deploy.local.progress import Report, heartbeat
from deploy.local.slurm.tree import require_release
from deploy.local.spec import DEBIAN_SUITES, GUEST

TOOLS: Final = {"qemu-system-x86_64": "qemu-system-x86", "mke2fs": "e2fsprogs"}
"""Programs with which this machine makes and boots a guest -> Debian's packages with these programs."""
_PACKAGES: Final = (
    "base-files",
    "bash",
    "busybox-static",
    "containerd",
    "containernetworking-plugins",
    "coreutils",
    "dash",
    "dbus",
    "dbus-system-bus-common",
    "findutils",
    "grep",
    "hostname",
    "iproute2",
    "kmod",
    "linux-image-cloud-amd64",
    "mount",
    "nftables",
    "procps",
    "python3",
    "runc",
    "sed",
    "slurm-client",
    "slurm-wlm-basic-plugins",
    "slurmd",
    "systemd",
    "tar",
    "util-linux",
)
_FOLDERS: Final = ("dev", "etc/slurm", "home", "opt", "proc", "run", "sys", "tmp", "var/lib/slurm")
# Units that systemd must not start, because other code does their work, or because the guest does not
# need their work.
_MASKED: Final = (
    "containerd.service",
    "dracut-shutdown.service",
    "getty.target",
    "ldconfig.service",
    "slurmd.service",
    "systemd-firstboot.service",
    "systemd-hwdb-update.service",
    "systemd-journal-flush.service",
    "systemd-journald-dev-log.socket",
    "systemd-journald.service",
    "systemd-journald.socket",
    "systemd-logind.service",
    "systemd-networkd.service",
    "systemd-resolved.service",
    "systemd-timesyncd.service",
    "systemd-udev-trigger.service",
    "systemd-udevd.service",
    "systemd-update-done.service",
)
_MACHINE_ID: Final = "6775657374677565737467756573746f"
_NOT_NEEDED: Final = ("doc", "info", "locale", "man")
# Options of the kernel that must be built in. They must not be modules, because the guest boots without
# an initramfs. VT is for the devices that inside/prepare creates.
_BUILT_IN: Final = ("BLK_DEV_NVME", "CGROUP_BPF", "EXT4_FS", "SERIAL_8250_CONSOLE", "VT")


def guest_tree(release: str, report: Report) -> Path:
    """Returns the folder with the guest's files and this release of Slurm. The first call on a machine
    downloads 150 MB. Raises ClusterError, with the output of a program, if Debian's current packages do
    not work together."""
    suite = DEBIAN_SUITES[release]

    def build(place: Path) -> None:
        report(f"unpacking the guest from Debian {suite}, and trying it (about half a minute)")
        with heartbeat(report, lambda: "still unpacking the guest"):
            debian.unpack(suite, _PACKAGES, place)
            _finish(place)
            _try(release, place)

    return build_once(tree_place(release), build, report)


def tree_place(release: str) -> Path:
    """Returns the path of the tree, even if the tree is not built yet."""
    key = recipe_hash(*(Path(module).read_bytes() for module in (__file__, debian.__file__)))
    return trees_folder() / f"guest-{release}-{DEBIAN_SUITES[release]}-{key}"


def kernel_of(tree: Path) -> Path:
    """Returns the kernel for QEMU."""
    return _of_kernel(tree, "vmlinuz")


def python_of(tree: Path) -> str:
    """Returns the version of the tree's Python: "3.14"."""
    return (tree / "usr/bin/python3").readlink().name.removeprefix("python")


def _finish(tree: Path) -> None:
    for folder in _FOLDERS:
        (tree / folder).mkdir(parents=True, exist_ok=True)
    debian.finish(tree)
    (tree / "etc/hosts").write_text(f"127.0.0.1 localhost {GUEST}\n")
    (tree / "etc/hostname").write_text(f"{GUEST}\n")
    (tree / "etc/resolv.conf").unlink(missing_ok=True)
    (tree / "etc/resolv.conf").touch()  # the kubelet reads it
    (tree / "etc/machine-id").unlink(missing_ok=True)
    (tree / "etc/machine-id").write_text(f"{_MACHINE_ID}\n")
    _finish_systemd(tree)
    for name in _NOT_NEEDED:
        debian.run(["rm", "-rf", str(tree / "usr/share" / name)])
    for modules in (tree / "usr/lib/modules").iterdir():
        debian.run(["chroot", str(tree), "/usr/sbin/depmod", modules.name])
    compile_python(tree, f"/usr/lib/python{python_of(tree)}")


def _finish_systemd(tree: Path) -> None:
    with (tree / "etc/passwd").open("a") as users, (tree / "etc/group").open("a") as groups:
        users.write("messagebus:x:100:100::/nonexistent:/usr/sbin/nologin\n")
        groups.write("messagebus:x:100:\n")
    units = tree / "etc/systemd/system"
    units.mkdir(parents=True, exist_ok=True)
    for unit in _MASKED:
        (units / unit).unlink(missing_ok=True)
        (units / unit).symlink_to("/dev/null")


def compile_python(tree: Path, folder: str) -> None:
    """Compiles the Python files in a folder of the tree. Otherwise the guest would compile them at each
    start, and need ten times as long. Raises ClusterError for a file with an error."""
    compile_all = ("-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash")
    debian.run(["chroot", str(tree), "/usr/bin/python3", *compile_all, folder])


def _try(release: str, tree: Path) -> None:
    version = debian.run(["chroot", str(tree), "/usr/sbin/slurmd", "-V"])
    require_release(release, "slurmd", version)
    for program in ("containerd", "runc"):
        debian.run(["chroot", str(tree), program, "--version"])
    configuration = _of_kernel(tree, "config")
    built_in = set(re.findall(r"^CONFIG_(\w+)=y$", configuration.read_text(), re.MULTILINE))
    if missing := [name for name in _BUILT_IN if name not in built_in]:
        raise ClusterError(f"{configuration.name}: not built into the kernel: {', '.join(missing)}")


def _of_kernel(tree: Path, name: str) -> Path:
    """Returns the path of a file of the kernel's package. Debian's suites have this file in different
    folders."""
    found = [*tree.glob(f"boot/{name}-*"), *tree.glob(f"usr/lib/modules/*/{name}")]
    if not found:
        raise ClusterError(f"Debian's kernel has no file {name}")
    return found[0]
