"""Builds Helm once on a machine. Helm renders the chart. programs/helm/go.mod names the release."""

import os
import re
from pathlib import Path
from typing import Final

from deploy.local.programs.cache import build_once, cache_folder, recipe_hash
from deploy.local.programs.go_program import GoProgram
from deploy.local.progress import Report

_PROGRAM: Final = GoProgram(Path(__file__).with_name("helm"), "helm.sh/helm/v4/cmd/helm")


def helm(report: Report) -> Path:
    """Returns the program. The first call on a machine builds for some minutes. Raises ClusterError."""

    def build(place: Path) -> None:
        report(f"building Helm {_release()}: about 3 minutes on 2 cores, once")
        place.mkdir()
        _PROGRAM.build(place / "helm", report)

    return build_once(helm_place(), build, report) / "helm"


def helm_place() -> Path:
    """Returns the folder of Helm, even if Helm is not built yet."""
    recipe = recipe_hash(*_PROGRAM.sources(), _PROGRAM.linker_flags.encode())
    return cache_folder() / f"helm-{_release()}-{os.uname().machine}-{recipe}"


def _release() -> str:
    """Returns the release of Helm that go.mod names."""
    required = re.search(r"helm\.sh/helm/v4 v(\S+)", (_PROGRAM.folder / "go.mod").read_text())
    assert required is not None
    return required[1]
