"""The import contracts hold, and each of them would notice if it did not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
CONTRACTS = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]

MODULES = [
    "extender/adoption.py",
    "extender/app.py",
    "extender/audit/__main__.py",
    "extender/audit/reader.py",
    "extender/claim_watch.py",
    "extender/cluster_view.py",
    "extender/connections.py",
    "extender/dispatcher.py",
    "extender/health.py",
    "extender/job_watch.py",
    "extender/lease.py",
    "extender/listener.py",
    "extender/node_keeper.py",
    "extender/occupancy_view.py",
    "extender/pod_watch.py",
    "extender/recovery.py",
    "extender/refusals.py",
    "extender/resource_watch.py",
    "extender/seldom.py",
    "extender/placement/ledger.py",
    "extender/placement/policy.py",
    "extender/admission/mutate.py",
    "extender/bind/route.py",
    "extender/filter/route.py",
    "extender/hooks/route.py",
    "extender/policy/file.py",
    "extender/preempt/route.py",
    "extender/prioritize/route.py",
    "slurm_client/in_memory/slurm.py",
    "slurm_client/model.py",
    "slurm_client/rest.py",
]

# Contract, importing module, what it imports.
VIOLATIONS = [
    ("slurm_client knows nothing of the project", "slurm_client/model.py", "extender.dispatcher"),
    ("slurm_client knows nothing of the project", "slurm_client/rest.py", "kubernetes"),
    (
        "only the composition roots build the Slurm adapter",
        "extender/dispatcher.py",
        "slurm_client.rest",
    ),
    ("only the adapter talks to kube-apiserver", "extender/dispatcher.py", "aiohttp"),
    ("only the adapter talks to kube-apiserver", "extender/bind/route.py", "kubernetes"),
    ("only the adapter talks to kube-apiserver", "extender/lease.py", "aiohttp"),
    ("only the adapter talks to kube-apiserver", "extender/audit/reader.py", "aiohttp"),
    (
        "only the composition roots build the Slurm adapter",
        "extender/audit/reader.py",
        "slurm_client.rest",
    ),
    ("each verb stands alone", "extender/bind/route.py", "extender.filter.route"),
    ("each verb stands alone", "extender/hooks/route.py", "extender.admission.mutate"),
    ("placement decides, and nothing else", "extender/placement/ledger.py", "asyncio"),
    ("placement decides, and nothing else", "extender/placement/ledger.py", "prometheus_client"),
    ("placement decides, and nothing else", "extender/placement/ledger.py", "time"),
    ("placement decides, and nothing else", "extender/placement/policy.py", "yaml"),
]


def broken_contracts(checkout: Path) -> set[str]:
    """Runs import-linter on a checkout and returns the contracts that it says are broken."""
    lint = Path(sys.executable).parent / "lint-imports"
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(checkout), "COLUMNS": "200"}
    done = subprocess.run(
        [lint, "--no-cache", "--no-logo"],
        cwd=checkout,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = {line.strip() for line in done.stdout.splitlines()}
    broken = {contract["name"] for contract in CONTRACTS if f"{contract['name']} BROKEN" in lines}
    kept = {contract["name"] for contract in CONTRACTS if f"{contract['name']} KEPT" in lines}
    assert broken | kept == {contract["name"] for contract in CONTRACTS}, done.stdout + done.stderr
    assert done.returncode == (1 if broken else 0)
    return broken


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A project of empty modules under the contracts of this one."""
    shutil.copy(PROJECT / "pyproject.toml", tmp_path)
    for module in MODULES:
        path = tmp_path / module
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        for package in (path.parent, *path.parent.relative_to(tmp_path).parents):
            if package != Path():
                (tmp_path / package / "__init__.py").touch()
    return tmp_path


def test_this_project_keeps_its_contracts() -> None:
    assert broken_contracts(PROJECT) == set()


def test_a_project_of_empty_modules_breaks_nothing(tiny: Path) -> None:
    assert broken_contracts(tiny) == set()


@pytest.mark.parametrize(("contract", "module", "imported"), VIOLATIONS)
def test_a_forbidden_import_breaks_its_contract_and_no_other(
    tiny: Path, contract: str, module: str, imported: str
) -> None:
    (tiny / module).write_text(f"import {imported}\n")
    assert broken_contracts(tiny) == {contract}


def test_a_way_around_is_noticed_too(tiny: Path) -> None:
    (tiny / "extender/placement/ledger.py").write_text("import extender.dispatcher\n")
    (tiny / "extender/dispatcher.py").write_text("import asyncio\n")
    assert broken_contracts(tiny) == {"placement decides, and nothing else"}


def test_every_contract_is_tried() -> None:
    assert {contract for contract, _, _ in VIOLATIONS} == {contract["name"] for contract in CONTRACTS}
