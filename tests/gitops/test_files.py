"""Tests of the example files: Argo CD, Flux and both charts accept them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deploy.local.cluster import Cluster
from deploy.local.errors import ClusterError
from tests.chart_matrix import MATRIX, merged
from tests.gitops.changes import of_the_release
from tests.gitops.examples import CHARTS, FILES, FOLDER, application, helm_release, rendered, values

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

_DRY_RUN = (
    *("apply", "--server-side", "--force-conflicts", "--dry-run=server"),
    *("--validate=strict", "-f", "-"),
)
_LARGEST_ANNOTATION = 262_144
"""Maximum size of all annotations of an object, in bytes (Kubernetes' TotalAnnotationSizeLimitB).
`kubectl apply`, and therefore Argo CD, stores the whole object in an annotation."""


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(FOLDER)))
def test_kube_apiserver_accepts_each_file_and_field(gitops_cluster: Cluster, file: Path) -> None:
    gitops_cluster.kubectl(*_DRY_RUN, stdin=file.read_text())


@pytest.mark.parametrize("file", ["argocd/slurm.yaml", "flux/slurm.yaml", "flux/source.yaml"])
def test_unknown_field_is_rejected(gitops_cluster: Cluster, file: str) -> None:
    wrong = (FOLDER / file).read_text().replace("\nspec:\n", "\nspec:\n  intervall: 1h\n")
    with pytest.raises(ClusterError, match="intervall"):
        gitops_cluster.kubectl(*_DRY_RUN, stdin=wrong)


@pytest.mark.parametrize("chart", CHARTS)
def test_both_tools_have_the_same_values(chart: str) -> None:
    assert helm_release(chart)["spec"]["values"] == values(chart)


@pytest.mark.parametrize("chart", CHARTS)
def test_chart_accepts_the_values_in_existing_namespaces(gitops_cluster: Cluster, chart: str) -> None:
    objects = of_the_release(rendered(chart, values(chart)))
    listed = {"apiVersion": "v1", "kind": "List", "items": objects}
    gitops_cluster.kubectl(*_DRY_RUN, stdin=json.dumps(listed))


@pytest.mark.parametrize("chart", CHARTS)
def test_both_tools_use_the_chart_of_this_checkout(chart: str) -> None:
    assert application(chart)["spec"]["source"]["path"] == f"deploy/charts/{chart}"
    assert helm_release(chart)["spec"]["chart"]["spec"]["chart"] == f"deploy/charts/{chart}"
    names = [application(chart)["spec"]["source"]["helm"], helm_release(chart)["spec"]]
    assert {each["releaseName"] for each in names} == {chart}


def test_no_object_is_too_large_for_the_annotation_of_kubectl_apply() -> None:
    largest = merged(values("slurm-extender"), MATRIX["monitoring"])
    for each in rendered("slurm-extender", largest).manifests:
        assert len(json.dumps(each)) < _LARGEST_ANNOTATION, each["metadata"]["name"]
