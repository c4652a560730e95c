"""Tests of the import contracts of import-linter. The project keeps each contract. A forbidden import
breaks exactly the contract with this prohibition."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from copy import deepcopy
from functools import cache
from pathlib import Path

import pytest
from grimp import ImportGraph
from importlinter import Contract
from importlinter.api import read_configuration
from importlinter.contracts.acyclic_siblings import AcyclicSiblingsContract
from importlinter.contracts.forbidden import ForbiddenContract
from importlinter.contracts.layers import LayersContract
from importlinter.contracts.protected import ProtectedContract

PROJECT = Path(__file__).parents[2]
IMPORTLINTER = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["importlinter"]
CONTRACTS = IMPORTLINTER["contracts"]
ROOT_PACKAGES = IMPORTLINTER["root_packages"]

PACKAGES, INSIDE = "tests, tools, programs, clients, services", "the extender's packages"
ROOTS, CLIENT = (
    "only the composition roots build the adapters",
    "only the client talks to kube-apiserver",
)
HTTP = "calls by HTTP are httpx's"
UVICORN = "only the listener knows uvicorn"
PURE = "what decides does nothing else"
COMMAND_LINES = "command lines are typer's"
AGENT, VENDORS = "the node agent's packages", "only the list of GPU vendors names a vendor"
CLUSTER = "the packages of slurm-cluster"
TOPOLOGY = "the modules of slurm-cluster's topology"
CIRCLES = "no circles of packages"

# By entry: the broken contract, the importing module, and the imported module.
VIOLATIONS = [
    (PACKAGES, "slurm_client/model.py", "extender.execution.dispatcher"),
    (PACKAGES, "slurm_client/rest/client.py", "kubernetes_client.errors"),
    (PACKAGES, "kubernetes_client/rest.py", "slurm_client.model"),
    (PACKAGES, "service/health.py", "slurm_client.errors"),
    (PACKAGES, "service/health.py", "wellknown.names"),
    (PACKAGES, "wellknown/names.py", "service.health"),
    (PACKAGES, "node_agent/pods/claims.py", "extender.pod_request.pod"),
    (PACKAGES, "extender/pod_request/pod.py", "node_agent.pods.claims"),
    (PACKAGES, "extender/pod_request/pod.py", "deploy.local.spec"),
    (PACKAGES, "wellknown/names.py", "loadtest.harness.meters"),
    (PACKAGES, "slurm_client/rest/client.py", "tests.eventually"),
    (PACKAGES, "deploy/local/spec.py", "loadtest.harness.variants"),
    (PACKAGES, "deploy/local/spec.py", "tests.eventually"),
    (PACKAGES, "loadtest/harness/pods.py", "tests.builders"),
    (AGENT, "node_agent/machine/cpus.py", "node_agent.enforcement.keeper"),
    (AGENT, "node_agent/kernel/bpf.py", "node_agent.machine.devices"),
    (VENDORS, "node_agent/runtime/container_devices.py", "node_agent.machine.vendors.nvidia"),
    (PACKAGES, "slurm_cluster/programs.py", "node_agent.pods.claims"),
    (CLUSTER, "slurm_cluster/configuration/configurer.py", "slurm_cluster.accounts"),
    (CLUSTER, "slurm_cluster/programs.py", "slurm_cluster.configure"),
    (INSIDE, "extender/execution/dispatcher.py", "extender.telemetry"),
    (INSIDE, "extender/placement/ledger.py", "extender.execution.pod_patches"),
    (INSIDE, "extender/turns/ranking.py", "extender.placement.ledger"),
    (INSIDE, "extender/bind/route.py", "extender.filter.route"),
    (INSIDE, "extender/hooks/route.py", "extender.admission.mutate"),
    (INSIDE, "extender/node_sync/controller.py", "extender.app"),
    (INSIDE, "extender/pod_request/pod.py", "extender.policy.rules"),
    (ROOTS, "extender/execution/dispatcher.py", "slurm_client.rest.client"),
    (ROOTS, "extender/audit/reader.py", "slurm_client.rest.client"),
    (ROOTS, "extender/execution/pod_watch.py", "kubernetes_client.rest"),
    (ROOTS, "kubernetes_client/watch.py", "kubernetes_client.rest"),
    (ROOTS, "deploy/local/cluster.py", "kubernetes_client.rest"),
    (CLIENT, "extender/execution/dispatcher.py", "kubernetes"),
    (HTTP, "extender/execution/dispatcher.py", "aiohttp"),
    (HTTP, "kubernetes_client/rest.py", "aiohttp"),
    (ROOTS, "node_agent/agent.py", "kubernetes_client.rest"),
    (HTTP, "node_agent/agent.py", "aiohttp"),
    (CLIENT, "slurm_client/rest/client.py", "kubernetes"),
    (HTTP, "service/http/pool.py", "urllib3"),
    (UVICORN, "extender/app.py", "uvicorn"),
    (UVICORN, "service/probes.py", "uvicorn"),
    (COMMAND_LINES, "node_agent/command_line.py", "argparse"),
    (PURE, "extender/placement/ledger.py", "asyncio"),
    (PURE, "extender/placement/ledger.py", "prometheus_client"),
    (PURE, "extender/placement/ledger.py", "time"),
    (PURE, "extender/turns/ranking.py", "time"),
    (ROOTS, "extender/preflight/reader.py", "kubernetes_client.rest"),
    (PURE, "extender/policy/rules.py", "yaml"),
    (PURE, "extender/kube_scheduler/configuration.py", "yaml"),
    (PURE, "wellknown/names.py", "structlog"),
    (PURE, "node_agent/enforcement/decision.py", "time"),
    (PURE, "slurm_cluster/configuration/plan.py", "time"),
    (ROOTS, "slurm_cluster/keys/secrets.py", "kubernetes_client.rest"),
    (PURE, "slurm_cluster/topology/build.py", "yaml"),
    (PACKAGES, "slurm_cluster/topology/watch.py", "extender.policy.rules"),
    (ROOTS, "slurm_cluster/topology/watch.py", "kubernetes_client.rest"),
    (HTTP, "slurm_cluster/topology/watch.py", "requests"),
    (TOPOLOGY, "slurm_cluster/topology/build.py", "slurm_cluster.topology.watch"),
]
# Each entry has two imports, which together form a circle of packages. The circles are between packages
# at different depths.
_CIRCLES = [
    (
        ("deploy/images/builder.py", "deploy.local.spec"),
        ("deploy/local/guest/agent.py", "deploy.images.image"),
    ),
    (
        ("loadtest/scenarios/stage.py", "loadtest.report.figures"),
        ("loadtest/report/figures.py", "loadtest.scenarios.load"),
    ),
    (
        ("deploy/local/cluster.py", "deploy.local.guest.nodes"),
        ("deploy/local/guest/nodes.py", "deploy.local.cluster"),
    ),
    (
        ("tests/end_to_end/actors.py", "tests.eventually"),
        ("tests/eventually.py", "tests.end_to_end.actors"),
    ),
    (
        ("slurm_client/model.py", "slurm_client.errors"),
        ("slurm_client/errors.py", "slurm_client.model"),
    ),
]
KINDS: dict[str, type[Contract]] = {
    each.type_name: each
    for each in (AcyclicSiblingsContract, ForbiddenContract, LayersContract, ProtectedContract)
}


def lint(checkout: Path) -> subprocess.CompletedProcess[str]:
    """Runs import-linter on a checkout."""
    program = Path(sys.executable).parent / "lint-imports"
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(checkout), "COLUMNS": "200"}
    return subprocess.run(
        [program, "--no-cache", "--no-logo"],
        cwd=checkout,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def broken_contracts(checkout: Path) -> set[str]:
    """Returns the broken contracts of a checkout, as reported by import-linter."""
    done = lint(checkout)
    lines = {line.partition(" (")[0].strip() for line in done.stdout.splitlines()}
    broken = {contract["name"] for contract in CONTRACTS if f"{contract['name']} BROKEN" in lines}
    kept = {contract["name"] for contract in CONTRACTS if f"{contract['name']} KEPT" in lines}
    assert broken | kept == {contract["name"] for contract in CONTRACTS}, done.stdout + done.stderr
    assert done.returncode == (1 if broken else 0)
    return broken


def name_of(file: str | Path) -> str:
    """Returns the name of the module in a file. `file` is relative to the project."""
    return ".".join(Path(file).with_suffix("").parts).removesuffix(".__init__")


@cache
def modules() -> list[str]:
    """Names of all modules of this project."""
    files = (file for package in ROOT_PACKAGES for file in (PROJECT / package).rglob("*.py"))
    return [name_of(file.relative_to(PROJECT)) for file in files]


def broken_by(*imports: tuple[str, str]) -> set[str]:
    """Returns the broken contracts of the project, if the modules of the project have only the given
    imports."""
    graph = ImportGraph()
    for module in modules():
        graph.add_module(module)
    for file, imported in imports:
        if imported.partition(".")[0] not in ROOT_PACKAGES:
            graph.add_module(imported, is_squashed=True)
        graph.add_import(importer=name_of(file), imported=imported)
    configured = read_configuration(str(PROJECT / "pyproject.toml"))
    contracts = [
        KINDS[options["type"]](options["name"], configured["session_options"], options)
        for options in configured["contracts_options"]
    ]
    return {each.name for each in contracts if not each.check(deepcopy(graph), verbose=False).kept}


def test_this_project_keeps_its_contracts() -> None:
    assert broken_contracts(PROJECT) == set()


def test_project_of_empty_modules_keeps_all_contracts() -> None:
    assert broken_by() == set()


@pytest.mark.parametrize(("contract", "module", "imported"), VIOLATIONS)
def test_forbidden_import_breaks_only_its_contract(contract: str, module: str, imported: str) -> None:
    assert broken_by((module, imported)) == {contract}


@pytest.mark.parametrize("imports", _CIRCLES)
def test_cycle_of_packages_breaks_only_its_contract(imports: tuple[tuple[str, str], ...]) -> None:
    assert broken_by(*imports[:1]) == broken_by(*imports[1:]) == set()
    assert broken_by(*imports) == {CIRCLES}


def test_indirect_import_breaks_its_contract() -> None:
    ledger, tokens = "extender/placement/ledger.py", "slurm_client/tokens.py"
    assert broken_by((ledger, name_of(tokens)), (tokens, "asyncio")) == {PURE}


def test_linter_reads_the_imports_of_files(tmp_path: Path) -> None:
    """The linter reads files of a checkout with empty modules. First, a module has an import that PURE
    forbids. Then a new module is in no layer."""
    shutil.copy(PROJECT / "pyproject.toml", tmp_path)
    for module in modules():
        path = tmp_path.joinpath(*module.split("."))
        path.mkdir(parents=True, exist_ok=True)
        (path / "__init__.py").touch()
    (tmp_path / "wellknown/names/__init__.py").write_text("import structlog\n")
    assert broken_contracts(tmp_path) == {PURE}
    (tmp_path / "extender/attic.py").touch()
    done = lint(tmp_path)
    assert done.returncode == 1
    assert "attic" in done.stdout


def test_each_contract_has_a_test() -> None:
    tried = {contract for contract, _, _ in VIOLATIONS} | {CIRCLES}
    assert tried == {contract["name"] for contract in CONTRACTS}
