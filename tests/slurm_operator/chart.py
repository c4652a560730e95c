"""Renders the slurm chart of SchedMD's slurm-operator with Helm.

The chart is in the operator's Go module, which the ordinary Go client downloads. A Go module cannot
contain a folder named `vendor`, so the chart's templates in `vendor` (for DCGM) are missing. Here, empty
templates replace them.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from deploy.local.layout import CHECKOUT
from deploy.local.programs.helm_binary import helm
from deploy.local.progress import silent

MODULE = "github.com/SlinkyProject/slurm-operator@v1.1.0"
SUM = "h1:TT3dGxWQ/z6nrSwNfphXT65LCNTrZDfe+2FgVRZVTa4="
PAGE = CHECKOUT / "docs" / "tasks" / "slurm-operator.md"
LEFT_OUT = "".join(
    f'{{{{- define "vendor.dcgm.{name}" -}}}}{{{{- end -}}}}\n'
    for name in ("enabled", "prologName", "epilogName", "nodesetHasGPU", "jobMappingDir")
)

Manifest = Mapping[str, Any]


def fetched() -> Path:
    """Downloads the Go module and returns its folder. Fails if the checksum is wrong."""
    done = subprocess.run(
        ["go", "mod", "download", "-json", MODULE], capture_output=True, text=True, check=False
    )
    told = json.loads(done.stdout)
    assert told.get("Sum") == SUM, told
    return Path(told["Dir"])


def values() -> list[Mapping[str, Any]]:
    """Returns the three YAML blocks of the page: the values of the operator's chart, a Token, and the
    values of slurm-extender."""
    blocks = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return [yaml.safe_load(text) for text in blocks]


def rendered(work: Path, given: Mapping[str, Any]) -> list[Manifest]:
    """Returns the objects of the Helm release `slurm` in the namespace `slurm`."""
    chart = work / "chart"
    if not chart.exists():
        shutil.copytree(fetched() / "helm" / "slurm", chart)
        for path in [chart, *chart.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)
        (chart / "templates" / "_left_out.tpl").write_text(LEFT_OUT)
    file = work / "values.yaml"
    file.write_text(yaml.safe_dump(dict(given)))
    options = ("--namespace", "slurm", "--values", str(file))
    command = [str(helm(silent)), "template", "slurm", str(chart), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def one(manifests: list[Manifest], kind: str) -> Manifest:
    """Returns the only object of this kind. Fails if there is none, or more than one."""
    (found,) = (each for each in manifests if each["kind"] == kind)
    return found


def slurm_conf(manifests: list[Manifest]) -> list[str]:
    """Returns the lines for slurm.conf that the object Controller contains."""
    lines = one(manifests, "Controller")["spec"]["extraConf"].splitlines()
    return [line for line in lines if line.strip()]
