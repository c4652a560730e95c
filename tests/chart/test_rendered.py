"""What is rendered is what a real kube-apiserver takes, with strict validation of each field."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import pytest

from deploy.local.chart import AGENT_NAME, CHART, RELEASE, Manifest, Rendered, template
from deploy.local.cluster import Cluster
from deploy.local.errors import ClusterError
from deploy.local.helm_binary import helm
from deploy.local.progress import silent
from tests.chart import figures
from tests.chart.matrix import MATRIX, UNINSTALL, with_needed

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]  # on a busy machine

_DRY_RUN = (
    *("apply", "--server-side", "--force-conflicts", "--field-manager=helm"),
    *("--dry-run=server", "--validate=strict", "-f", "-"),
)


@pytest.mark.parametrize("case", MATRIX)
def test_helm_lint_finds_nothing(case: str) -> None:
    values = json.dumps(with_needed(MATRIX[case]))
    command = [str(helm(silent)), "lint", "--strict", str(CHART), "--values", "-"]
    done = subprocess.run(command, input=values, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 chart(s) failed" in done.stdout


@dataclass
class Count:
    """What was shown to kube-apiservers, and what of it they refused."""

    objects: int = 0
    rejected: int = 0


@pytest.fixture(scope="module")
def count() -> Iterator[Count]:
    counted = Count()
    yield counted
    figures.leave(**asdict(counted))


@pytest.mark.parametrize("case", MATRIX)
def test_kube_apiserver_takes_each_object_and_knows_each_field(
    release_cluster: Cluster, count: Count, case: str
) -> None:
    release = release_cluster.spec.kubernetes_release
    rendered = template(helm(silent), with_needed(MATRIX[case]), "--kube-version", f"{release}.0")
    count.objects += len(Rendered.parsed(rendered).manifests)
    try:
        release_cluster.kubectl(*_DRY_RUN, stdin=rendered)
    except ClusterError as error:
        count.rejected += max(1, str(error).count("\n"))
        raise


def test_the_pods_are_let_into_a_restricted_namespace(release_cluster: Cluster) -> None:
    """All but the node agent's, which the same namespace refuses."""
    label = "pod-security.kubernetes.io/enforce=restricted"
    release_cluster.kubectl("create", "namespace", "restricted")
    release_cluster.kubectl("label", "namespace", "restricted", label)
    chart = Rendered.of(helm(silent), with_needed(UNINSTALL))
    for kind, suffix in (("Deployment", ""), ("Job", "-uninstall"), ("Pod", "-check")):
        create_there(release_cluster, chart.find(kind, f"{RELEASE}{suffix}"))
    with pytest.raises(ClusterError, match='violates PodSecurity "restricted'):
        create_there(release_cluster, chart.find("DaemonSet", AGENT_NAME))


def create_there(cluster: Cluster, workload: Manifest) -> None:
    """Has kube-apiserver say whether it would make the Pod."""
    spec = workload["spec"] if workload["kind"] == "Pod" else workload["spec"]["template"]["spec"]
    metadata = {"name": "p", "namespace": "restricted"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    cluster.kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(pod))


def test_an_object_that_is_wrong_would_be_noticed(release_cluster: Cluster) -> None:
    rendered = template(helm(silent), with_needed({}))
    for right, wrong in (("failurePolicy: Fail", "failurePolicie: Fail"), ("port: 443", "port: 800000")):
        assert right in rendered
        with pytest.raises(ClusterError):
            release_cluster.kubectl(*_DRY_RUN, stdin=rendered.replace(right, wrong))
