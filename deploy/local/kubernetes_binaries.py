"""The Kubernetes binaries: those of this machine where they fit together, else built here, once.

One Go program (deploy/local/kubernetes) is all of them; each name is a link to it.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from deploy.local.cache import build_once, cache_folder, recipe_hash
from deploy.local.errors import ClusterError
from deploy.local.progress import Report, heartbeat

# What deploy/local/kubernetes/go.mod requires.
BUILT_VERSION: Final = "1.36.2"
GO_VERSION: Final = (1, 26)

CONTROL_PLANE: Final = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
BINARIES: Final = ("etcd", *CONTROL_PLANE, "kubectl", "kwok")

# major, minor
Version = tuple[int, int]

_BUILT_KUBERNETES: Final[Version] = (1, 36)
_SUPPORTED_KUBERNETES: Final = range(31, 37)
_SUPPORTED_ELSE: Final[Mapping[str, tuple[Version, ...]]] = {
    "etcd": ((3, 5), (3, 6)),
    "kwok": ((0, 8),),  # the Pod stages use its newest form
}
_SOURCE: Final = Path(__file__).with_name("kubernetes")
_LINKER_FLAGS: Final = "-s -w " + " ".join(
    f"-X k8s.io/component-base/version.{name}={value}"
    for name, value in (("gitVersion", f"v{BUILT_VERSION}"), ("gitMajor", 1), ("gitMinor", 36))
)


def kubernetes_binaries(report: Report) -> dict[str, str]:
    """A path for each of BINARIES. The first call on a machine may build for several minutes."""
    found = find_binaries()
    usable = choose({name: version for name, (_, version) in found.items()})
    binaries = {name: str(found[name][0]) for name in usable}
    if missing := [name for name in BINARIES if name not in binaries]:
        built = build_once(built_place(), lambda place: _build(place, report), report)
        binaries |= {name: str(built / name) for name in missing}
    if usable:
        report(f"using this machine's own {', '.join(sorted(usable))}")
    return binaries


def needs_build() -> bool:
    """Whether the next `kubernetes_binaries` has to build, and so needs Go."""
    found = find_binaries()
    usable = choose({name: version for name, (_, version) in found.items()})
    return len(usable) < len(BINARIES) and not built_place().exists()


def choose(found: Mapping[str, Version]) -> set[str]:
    """Which of the binaries found are used, so that the whole is one supported cluster.

    The control plane must agree in its minor version, with itself or with what would be built for
    the rest of it; kubectl may be one minor away from it.
    """
    chosen = {name for name, versions in _SUPPORTED_ELSE.items() if found.get(name) in versions}
    plane = {name: found[name] for name in CONTROL_PLANE if name in found}
    version = next(iter(plane.values()), _BUILT_KUBERNETES)
    complete = len(plane) == len(CONTROL_PLANE) or version == _BUILT_KUBERNETES
    if _is_supported(version) and complete and set(plane.values()) <= {version}:
        chosen |= plane.keys()
    else:
        version = _BUILT_KUBERNETES
    if (kubectl := found.get("kubectl")) and abs(kubectl[1] - version[1]) <= 1:
        chosen.add("kubectl")
    return chosen


def _is_supported(version: Version) -> bool:
    return version[0] == 1 and version[1] in _SUPPORTED_KUBERNETES


def find_binaries() -> dict[str, tuple[Path, Version]]:
    """The binaries in KUBEBUILDER_ASSETS and on PATH, with the versions that they claim."""
    folders = os.pathsep.join(
        filter(None, (os.environ.get("KUBEBUILDER_ASSETS"), os.environ.get("PATH")))
    )
    found = {}
    for name in BINARIES:
        path = shutil.which(name, path=folders)
        if path and (version := _version_of(Path(path))):
            found[name] = (Path(path), version)
    return found


def _version_of(binary: Path) -> Version | None:
    ask = ["version", "--client"] if binary.name == "kubectl" else ["--version"]
    try:
        done = subprocess.run([binary, *ask], capture_output=True, text=True, check=False, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r"\bv?(\d+)\.(\d+)\.\d+", done.stdout)
    return (int(match[1]), int(match[2])) if match else None


def built_place() -> Path:
    """Where the built binaries are, or will be."""
    sources = [(_SOURCE / name).read_bytes() for name in ("go.mod", "go.sum", "main.go")]
    recipe = recipe_hash(*sources, _LINKER_FLAGS.encode())
    return cache_folder() / f"kubernetes-{BUILT_VERSION}-{os.uname().machine}-{recipe}"


def _build(place: Path, report: Report) -> None:
    report(f"building Kubernetes {BUILT_VERSION}, etcd and kwok: about 5 minutes on 2 cores, once")
    with heartbeat(report, lambda: "fetching the Go modules"):
        total = len(_go("list", "-deps", ".").splitlines())
    place.mkdir()
    _compile(place / "all", total, report)
    for name in BINARIES:
        (place / name).symlink_to("all")


def _go(*arguments: str) -> str:
    done = subprocess.run(["go", *arguments], cwd=_SOURCE, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ClusterError(f"go {arguments[0]} failed:\n{done.stderr[-2000:]}")
    return done.stdout


def _compile(output: Path, total: int, report: Report) -> None:
    command = ["go", "build", "-v", "-ldflags", _LINKER_FLAGS, "-o", str(output), "."]
    compiled: list[str] = []
    with subprocess.Popen(command, cwd=_SOURCE, stderr=subprocess.PIPE, text=True) as build:
        assert build.stderr is not None
        with heartbeat(report, lambda: f"compiled {len(compiled)} of at most {total} packages"):
            compiled.extend(build.stderr)  # as they come
    if build.returncode != 0:
        raise ClusterError("go build failed:\n" + "".join(compiled[-20:]))
