"""Finds or builds the Kubernetes binaries.

If this machine has binaries of its own whose releases fit together (`choose`), a cluster uses these
binaries. This module builds all other binaries, once on a machine. A single Go program for each release
contains all binaries, under several names. Every cluster uses etcd and kwok of the newest release. The
kubelet is a separate program.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from deploy.local.programs.cache import build_once, cache_folder, recipe_hash
from deploy.local.programs.go_program import STRIPPED, GoProgram
from deploy.local.progress import Report
from deploy.local.spec import KUBERNETES_RELEASES

GO_VERSION: Final = (1, 26)

CONTROL_PLANE: Final = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
BINARIES: Final = ("etcd", *CONTROL_PLANE, "kubectl", "kwok")

# major, minor
Version = tuple[int, int]

_NEWEST: Final = KUBERNETES_RELEASES[0]
_SUPPORTED_KUBERNETES: Final = tuple((1, minor) for minor in range(31, 38))
_SUPPORTED_ELSE: Final[Mapping[str, tuple[Version, ...]]] = {
    "etcd": ((3, 5), (3, 6), (3, 7)),
    "kwok": ((0, 8),),  # the stages in templates/kwok.yaml have the format of this release
}
_SOURCES: Final = Path(__file__).with_name("kubernetes")
_KUBELET: Final = "./kubelet"


def kubernetes_binaries(release: str, report: Report) -> dict[str, str]:
    """Returns a path for each of BINARIES. The first call may build for minutes. `release` is from
    KUBERNETES_RELEASES. "" means this machine's own control plane if supported, else the newest
    release."""
    binaries, built = _chosen(release)
    if binaries:
        report(f"using this machine's own {', '.join(sorted(binaries))}")
    return binaries | {name: str(_built(source, report) / name) for name, source in built.items()}


def _built(release: str, report: Report) -> Path:
    return build_once(built_place(release), lambda place: _build(release, place, report), report)


def kubelet(report: Report) -> Path:
    """Returns the newest release's kubelet, built by the first call on a machine. Raises
    ClusterError."""
    release = _NEWEST

    def build(place: Path) -> None:
        report(f"building the kubelet of Kubernetes {_patch_release(release)}: 2 minutes or more, once")
        place.mkdir()
        _program(release, _KUBELET).build(place / "kubelet", report)

    return build_once(kubelet_place(), build, report) / "kubelet"


def kubelet_place() -> Path:
    """Returns the folder of the kubelet, even if the kubelet is not built yet."""
    return _place("kubelet", _NEWEST, "kubelet/main.go")


def needs_build(release: str) -> bool:
    """Returns whether the next `kubernetes_binaries` of the release has to build, and so needs Go."""
    _, built = _chosen(release)
    return not all(built_place(source).exists() for source in set(built.values()))


def _chosen(release: str) -> tuple[dict[str, str], dict[str, str]]:
    """Returns the paths of this machine's own usable binaries. For each other binary, also returns the
    release to build."""
    found = find_binaries()
    usable = choose({name: version for name, (_, version) in found.items()}, release)
    own = {name: str(found[name][0]) for name in usable}
    return own, {name: _source(name, release) for name in BINARIES if name not in own}


def _source(name: str, release: str) -> str:
    """Returns the release whose Go program contains this binary."""
    return _NEWEST if name in _SUPPORTED_ELSE else release or _NEWEST


def choose(found: Mapping[str, Version], release: str = "") -> set[str]:
    """Returns a subset of the found binaries, for a supported cluster. All control plane binaries have
    the same release: `release`, or the release of the found binaries. kubectl is at most one minor
    version older or newer."""
    chosen = {name for name, versions in _SUPPORTED_ELSE.items() if found.get(name) in versions}
    plane = {name: found[name] for name in CONTROL_PLANE if name in found}
    built = _version(release or _NEWEST)
    version = built if release else next(iter(plane.values()), built)
    complete = len(plane) == len(CONTROL_PLANE) or version == built
    if version in _SUPPORTED_KUBERNETES and complete and set(plane.values()) <= {version}:
        chosen |= plane.keys()
    else:
        version = built
    if (kubectl := found.get("kubectl")) and abs(kubectl[1] - version[1]) <= 1:
        chosen.add("kubectl")
    return chosen


def _version(release: str) -> Version:
    major, minor = release.split(".")
    return int(major), int(minor)


def find_binaries() -> dict[str, tuple[Path, Version]]:
    """Returns the binaries in KUBEBUILDER_ASSETS and on PATH, with their reported versions."""
    folders = os.pathsep.join(
        filter(None, (os.environ.get("KUBEBUILDER_ASSETS"), os.environ.get("PATH")))
    )
    found = {}
    for name in BINARIES:
        path = shutil.which(name, path=folders)
        if path and (version := version_of(Path(path))):
            found[name] = (Path(path), version)
    return found


def version_of(binary: Path) -> Version | None:
    """Returns a binary's reported version, or None."""
    ask = ["version", "--client"] if binary.name == "kubectl" else ["--version"]
    try:
        done = subprocess.run([binary, *ask], capture_output=True, text=True, check=False, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r"\bv?(\d+)\.(\d+)\.\d+", done.stdout)
    return (int(match[1]), int(match[2])) if match else None


def built_place(release: str) -> Path:
    """Returns the folder of the binaries of a release, even if they are not built yet."""
    return _place("kubernetes", release, "main.go")


def _place(name: str, release: str, main: str) -> Path:
    program = _program(release)
    recipe = recipe_hash(*program.sources(main), program.linker_flags.encode())
    return cache_folder() / f"{name}-{_patch_release(release)}-{os.uname().machine}-{recipe}"


def _program(release: str, package: str = ".") -> GoProgram:
    return GoProgram(_SOURCES / release, package, _linker_flags(release))


def _patch_release(release: str) -> str:
    """Returns the release of Kubernetes that go.mod names."""
    required = re.search(r"k8s\.io/kubernetes v(\S+)", (_SOURCES / release / "go.mod").read_text())
    assert required is not None
    return required[1]


def _linker_flags(release: str) -> str:
    """Returns linker flags for the binaries' reported version."""
    major, minor = _version(release)
    variables = {"gitVersion": f"v{_patch_release(release)}", "gitMajor": major, "gitMinor": minor}
    sets = (f"-X k8s.io/component-base/version.{name}={value}" for name, value in variables.items())
    return " ".join((STRIPPED, *sets))


def _build(release: str, place: Path, report: Report) -> None:
    names = [name for name in BINARIES if _source(name, release) == release]
    others = " and ".join(name for name in names if name in _SUPPORTED_ELSE)
    what = f"Kubernetes {_patch_release(release)}" + (f" with {others}" if others else "")
    report(f"building {what}: about 5 minutes on 2 cores, once")
    place.mkdir()
    _program(release).build(place / "all", report)
    for name in names:
        (place / name).symlink_to("all")
