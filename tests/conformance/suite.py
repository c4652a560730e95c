"""Builds Kubernetes' specs as one program, and runs this program against a cluster."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from deploy.local.cluster import Cluster
from deploy.local.errors import ClusterError
from deploy.local.programs.cache import build_once, cache_folder, recipe_hash
from deploy.local.progress import Report, heartbeat
from deploy.local.spec import KUBERNETES_RELEASES
from tests.conformance.comparison import SIG, Outcome, outcomes

RELEASE = KUBERNETES_RELEASES[0]
SOURCES = Path(__file__).with_name("suite") / RELEASE

POD_GROUPS = r"\[FeatureGate:GenericWorkload\]"
"""Regular expression for the names of specs of PodGroups."""
SKIPPED = {
    r"no conflict between pods with same hostPort but different hostIP": (
        "it takes a node's address for another one than 127.0.0.1, which all nodes have here"
    ),
    r"verify pod overhead is accounted for": (
        "it gives a node more capacity and waits for a kubelet to allocate from it; kwok does not"
    ),
    POD_GROUPS: "PodGroups are off by default: they have a run of their own",
}
"""By regular expression for the names of specs: the reason why these specs are skipped."""

_LIMIT = "2h"
_LDFLAGS = "-s -w"


def reasons(names: Iterable[str]) -> dict[str, str]:
    """Returns the specs among these names that are skipped, with the reason."""
    found = {
        name: next((why for text, why in SKIPPED.items() if re.search(text, name)), "") for name in names
    }
    return {name: why for name, why in found.items() if why}


def program(report: Report) -> Path:
    """Returns the path of the program. The first call on a machine takes some minutes, because it builds
    the program."""
    sources = [(SOURCES / name).read_bytes() for name in ("go.mod", "go.sum", "specs_test.go")]
    recipe = recipe_hash(*sources, _LDFLAGS.encode())
    return build_once(
        cache_folder() / f"conformance-{RELEASE}-{os.uname().machine}-{recipe}",
        lambda place: _build(place, report),
        report,
    )


def _build(place: Path, report: Report) -> None:
    if shutil.which("go") is None:
        raise ClusterError("Kubernetes' specs are built with Go, which is not on the PATH")
    command = ["go", "test", "-c", "-ldflags", _LDFLAGS, "-o", str(place), "."]
    with heartbeat(report, lambda: f"building Kubernetes' specs of {RELEASE}"):
        done = subprocess.run(command, cwd=SOURCES, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ClusterError(f"go test -c failed:\n{done.stderr[-2000:]}")


def arguments(kubeconfig: Path, results: Path, *, pod_groups: bool = False) -> list[str]:
    """Returns the program's arguments for all specs, or for the specs of PodGroups. The specs must not
    wait for a ServiceAccount, because no controller of the cluster creates ServiceAccounts, and no Pod
    needs one."""
    skipped = [each for each in SKIPPED if not pod_groups or each != POD_GROUPS]
    return [
        f"-kubeconfig={kubeconfig}",
        "-provider=skeleton",
        "-e2e-verify-service-account=false",
        "-dump-logs-on-failure=false",
        f"-ginkgo.focus={re.escape(SIG)}{'.*' + POD_GROUPS if pod_groups else ''}",
        f"-ginkgo.skip={'|'.join(skipped)}",
        f"-ginkgo.json-report={results}",
        f"-ginkgo.timeout={_LIMIT}",
        "-ginkgo.no-color",
        "-ginkgo.v",
        "-test.timeout=0",
    ]


def run(specs: Path, cluster: Cluster, report: Report) -> Mapping[str, Outcome]:
    """Runs the specs on a cluster: the specs of PodGroups if the cluster has feature gates, otherwise
    all other specs. Raises ClusterError if the specs write no results."""
    results, log = cluster.directory / "specs.json", cluster.logs / "specs.log"
    pod_groups = bool(cluster.spec.feature_gates)
    command = [str(specs), *arguments(cluster.kubeconfig, results, pod_groups=pod_groups)]
    with log.open("w") as output, heartbeat(report, lambda: _last_begun(log)):
        subprocess.run(
            command, cwd=cluster.directory, stdout=output, stderr=subprocess.STDOUT, check=False
        )
    if not results.exists():
        raise ClusterError(f"the specs did not run:\n{log.read_text()[-2000:]}")
    return outcomes(json.loads(results.read_text()))


def _last_begun(log: Path) -> str:
    begun = [line for line in log.read_text().splitlines() if line.startswith(SIG)]
    return begun[-1] if begun else "the specs begin"
