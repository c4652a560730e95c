"""Checks the prerequisites of a cluster on this machine before anything else happens."""

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator

from deploy.local.errors import MissingPrerequisitesError
from deploy.local.guest import tree as guest
from deploy.local.programs.debian import find_tool
from deploy.local.programs.helm_binary import helm_place
from deploy.local.programs.kubernetes_binaries import GO_VERSION, kubelet_place, needs_build
from deploy.local.programs.services_binary import services_place
from deploy.local.slurm.tree import tree_place
from deploy.local.spec import KUBERNETES_RELEASES, ClusterSpec, SpecError


def check_prerequisites(spec: ClusterSpec, *, helm: bool = False) -> None:
    """Raises MissingPrerequisitesError with the full list of problems. `helm` is True if the cluster
    needs Helm. Go and apt are not needed once the results of the first build are cached."""
    missing = [
        *_platform_problems(),
        *_tool_problems(),
        *(_guest_problems() if spec.guest else ()),
        *(_apt_problems() if _needs_apt(spec) else ()),
        *(_go_problems() if _needs_go(spec) or (helm and not helm_place().exists()) else ()),
    ]
    if missing:
        raise MissingPrerequisitesError(missing)


def _needs_apt(spec: ClusterSpec) -> bool:
    trees = [tree_place(spec), *([guest.tree_place(spec.release)] if spec.guest else [])]
    tools = all(map(find_tool, guest.TOOLS)) if spec.guest else True
    return not (tools and all(tree.exists() for tree in trees))


def _needs_go(spec: ClusterSpec) -> bool:
    if spec.guest and not kubelet_place().exists():
        return True
    if spec.services and not services_place().exists():
        return True
    release = KUBERNETES_RELEASES[0] if spec.guest else spec.kubernetes_release
    return spec.kubernetes and needs_build(release)


def _guest_problems() -> Iterator[str]:
    if platform.machine() != "x86_64":
        yield f"the guest needs x86_64, this is {platform.machine()}: use another machine."


def _platform_problems() -> Iterator[str]:
    if platform.system() != "Linux":
        yield f"Linux is needed, this is {platform.system()}: use a Debian or Ubuntu machine."
        return
    if platform.machine() not in {"x86_64", "aarch64"}:
        yield f"x86_64 or aarch64 is needed, this is {platform.machine()}: use another machine."
    if os.geteuid() != 0:
        yield (
            "root is needed (for mounts and namespaces): run the command with sudo, "
            "or in a container with --privileged."
        )


def _tool_problems() -> Iterator[str]:
    packages = {"nsenter": "util-linux", "unshare": "util-linux", "chroot": "coreutils"}
    for tool, package in packages.items():
        if not shutil.which(tool):
            yield f"{tool} is needed: apt-get install {package}"


def _apt_problems() -> Iterator[str]:
    if not shutil.which("apt-get"):
        yield "apt is needed (Slurm comes from Debian's packages): use Debian or Ubuntu."


def _go_problems() -> Iterator[str]:
    wanted = ".".join(map(str, GO_VERSION))
    how = f"install Go {wanted} or later and put it on PATH."
    if not shutil.which("go"):
        yield f"Go is needed to build the Kubernetes binaries: {how}"
    elif (found := _go_version()) < GO_VERSION:
        yield f"Go {'.'.join(map(str, found))} is too old: {how}"


def _go_version() -> tuple[int, ...]:
    # With GOTOOLCHAIN=local, Go reports the version of the installed Go. Without this setting, Go may
    # download the version that a go.mod requires.
    local = {**os.environ, "GOTOOLCHAIN": "local"}
    done = subprocess.run(
        ["go", "env", "GOVERSION"], env=local, capture_output=True, text=True, check=False
    )
    return tuple(map(int, re.findall(r"\d+", done.stdout)[:2]))


def main() -> None:
    """Prints the missing prerequisites. This module imports only the standard library, because the
    program runs before any package is installed."""
    try:
        check_prerequisites(ClusterSpec())
    except MissingPrerequisitesError as error:
        for line in error.missing:
            print(f"missing: {line}", file=sys.stderr)
        raise SystemExit(2) from None
    except SpecError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
