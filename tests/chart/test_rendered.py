"""Tests of Helm's objects on a real kube-apiserver: kube-apiserver accepts the objects, and knows each
field."""

from __future__ import annotations

import json
import subprocess

import pytest

from deploy.local.chart import AGENT_NAME, CHART, RELEASE, Manifest, template
from deploy.local.cluster import Cluster
from deploy.local.errors import ClusterError
from deploy.local.programs.helm_binary import helm
from deploy.local.progress import silent
from tests.chart import figures
from tests.chart.dry_run import rejections
from tests.chart.rendering import rendered
from tests.chart_matrix import MATRIX, UNINSTALL, with_needed

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]  # the machine may be busy


@pytest.mark.parametrize("case", ["defaults", "an existing kube-scheduler", "outside, all of it"])
def test_helm_lint_finds_nothing(case: str) -> None:
    values = json.dumps(with_needed(MATRIX[case]))
    command = [str(helm(silent)), "lint", "--strict", str(CHART), "--values", "-"]
    done = subprocess.run(command, input=values, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 chart(s) failed" in done.stdout


def test_kube_apiserver_accepts_each_object_and_field(release_cluster: Cluster) -> None:
    """Sends each object of all cases of the matrix."""
    version = ("--kube-version", f"{release_cluster.spec.kubernetes_release}.0")
    texts = [template(helm(silent), with_needed(values), *version) for values in MATRIX.values()]
    objects, rejected = rejections(release_cluster, texts)
    figures.leave(objects=objects, rejected=len(rejected))
    assert not rejected, "\n".join(rejected)


def test_restricted_namespace_admits_all_pods_except_the_node_agent(release_cluster: Cluster) -> None:
    """The namespace must also reject the Pod of the node agent, which needs more rights."""
    label = "pod-security.kubernetes.io/enforce=restricted"
    release_cluster.kubectl("create", "namespace", "restricted")
    release_cluster.kubectl("label", "namespace", "restricted", label)
    chart = rendered(UNINSTALL)
    for kind, suffix in (("Deployment", ""), ("Job", "-uninstall"), ("Pod", "-check")):
        create_there(release_cluster, chart.find(kind, f"{RELEASE}{suffix}"))
    with pytest.raises(ClusterError, match='violates PodSecurity "restricted'):
        create_there(release_cluster, chart.find("DaemonSet", AGENT_NAME))


def create_there(cluster: Cluster, workload: Manifest) -> None:
    """Creates a Pod of the workload in the restricted namespace, as a dry run."""
    spec = workload["spec"] if workload["kind"] == "Pod" else workload["spec"]["template"]["spec"]
    metadata = {"name": "p", "namespace": "restricted"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    cluster.kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(pod))


def test_wrong_object_is_rejected(release_cluster: Cluster) -> None:
    right = template(helm(silent), with_needed({}))
    wrong = [("failurePolicy: Fail", "failurePolicie: Fail"), ("port: 443", "port: 800000")]
    texts = [right.replace(*each) for each in wrong]
    assert right not in texts
    _, rejected = rejections(release_cluster, texts)
    assert [word for word in ("failurePolicie", "800000") if word not in "\n".join(rejected)] == []
