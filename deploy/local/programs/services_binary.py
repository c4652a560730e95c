"""Builds kube-proxy and CoreDNS, for Services in a guest, as a single program (programs/services)."""

import os
import re
from pathlib import Path
from typing import Final

from deploy.local.programs.cache import build_once, cache_folder, recipe_hash
from deploy.local.programs.go_program import GoProgram
from deploy.local.progress import Report

SERVICES_NAMES: Final = ("kube-proxy", "coredns")
"""Names under which the guest starts the single program."""
_PROGRAM: Final = GoProgram(Path(__file__).with_name("services"))


def services_binary(report: Report) -> Path:
    """Returns the program. The first call on a machine builds for some minutes. Raises ClusterError."""

    def build(place: Path) -> None:
        report("building kube-proxy and CoreDNS: about 3 minutes on 2 cores, once")
        place.mkdir()
        _PROGRAM.build(place / "services", report)

    return build_once(services_place(), build, report) / "services"


def services_place() -> Path:
    """Returns the folder of the program, even if the program is not built yet."""
    recipe = recipe_hash(*_PROGRAM.sources("main.go"), _PROGRAM.linker_flags.encode())
    return cache_folder() / f"services-{_release()}-{os.uname().machine}-{recipe}"


def _release() -> str:
    """Returns the release of Kubernetes that go.mod names."""
    required = re.search(r"k8s\.io/kubernetes v(\S+)", (_PROGRAM.folder / "go.mod").read_text())
    assert required is not None
    return required[1]
