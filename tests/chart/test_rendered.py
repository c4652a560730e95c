"""What is rendered is what a real kube-apiserver takes, with strict validation of each field."""

from __future__ import annotations

import json
import subprocess

import pytest

from deploy.local.chart import CHART, Rendered, template
from deploy.local.cluster import Cluster
from deploy.local.errors import ClusterError
from deploy.local.helm_binary import helm
from deploy.local.progress import silent
from tests.chart import figures
from tests.chart.matrix import MATRIX, with_needed

pytestmark = pytest.mark.real

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


def test_kube_apiserver_takes_each_object_and_knows_each_field(release_cluster: Cluster) -> None:
    objects, rejected = 0, list[str]()
    for case, values in MATRIX.items():
        release = release_cluster.spec.kubernetes_release
        rendered = template(helm(silent), with_needed(values), "--kube-version", f"{release}.0")
        objects += len(Rendered.parsed(rendered).manifests)
        try:
            release_cluster.kubectl(*_DRY_RUN, stdin=rendered)
        except ClusterError as error:
            rejected += [f"{case}: {line}" for line in str(error).splitlines()]
    figures.leave(objects=objects, rejected=len(rejected))
    assert not rejected
    assert objects > 20 * len(MATRIX) / 2


def test_an_object_that_is_wrong_would_be_noticed(release_cluster: Cluster) -> None:
    rendered = template(helm(silent), with_needed({}))
    for right, wrong in (("failurePolicy: Fail", "failurePolicie: Fail"), ("port: 443", "port: 800000")):
        assert right in rendered
        with pytest.raises(ClusterError):
            release_cluster.kubectl(*_DRY_RUN, stdin=rendered.replace(right, wrong))
