"""Tests of the examples for Argo CD and Flux: both tools ignore what programs change at run time in the
charts' objects.

The ignoreDifferences of an example list exactly the changed objects that the chart's templates create.
Commands on a real kube-apiserver show that the tools undo none of these changes.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from copy import deepcopy
from typing import Any

import pytest
import trustme

from deploy.local.chart import Manifest, Rendered, Values
from deploy.local.cluster import Cluster
from deploy.local.layout import CHECKOUT
from kubernetes_client.rest import KubernetesRest
from slurm_cluster.published_secrets import writer
from slurm_cluster.published_secrets.places import Copy, Place
from slurm_cluster.published_secrets.writer import Wanted, publish
from tests.chart_matrix import merged
from tests.gitops.changes import Object, changed, handed_out, made_by_programs, plural
from tests.gitops.examples import CHARTS, NAMESPACE, application, rendered, values

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

PAGE = (CHECKOUT / "docs/tasks/gitops.md").read_text()
HOOKS: Values = {
    "slurmExtender": {
        "hooks": {"urls": ["http://slurm-extender-hooks:8000"], "tokenSecret": {"name": "hooks-token"}}
    }
}
TREE: Values = {"topology": {"kind": "tree", "tiers": ["example.com/rack"]}}
CERT_MANAGER: Values = {"webhooks": {"certificates": {"mode": "certManager"}}}
OWN_CERTIFICATE: Values = {
    "webhooks": {"certificates": {"mode": "secret", "secretName": "tls", "caBundle": "Y2E="}}
}
LARGEST: dict[str, Values] = {
    "slurm": merged(values("slurm"), merged(HOOKS, TREE)),
    "slurm-extender": values("slurm-extender"),
}
"""Values of the examples. For `slurm`, further values make programs change more objects."""
CA_BUNDLE = ".webhooks[]?.clientConfig.caBundle"


def ignored(chart: str) -> list[Manifest]:
    found: list[Manifest] = application(chart)["spec"]["ignoreDifferences"]
    return found


def ignored_objects(chart: str) -> set[Object]:
    return {
        Object(each.get("group", ""), plural(each["kind"]), each.get("namespace", ""), each["name"])
        for each in ignored(chart)
    }


@pytest.mark.parametrize(
    ("chart", "more"),
    [
        ("slurm", {}),
        ("slurm", HOOKS),
        ("slurm", TREE),
        ("slurm-extender", {}),
        ("slurm-extender", CERT_MANAGER),
    ],
)
def test_only_changes_of_programs_are_ignored(chart: str, more: Values) -> None:
    objects = {Object.of(each) for each in changed(rendered(chart, merged(values(chart), more)))}
    assert objects == ignored_objects(chart)


def test_certificate_in_the_values_is_not_changed_by_programs() -> None:
    chart = rendered("slurm-extender", merged(values("slurm-extender"), OWN_CERTIFICATE))
    assert changed(chart) == []


def test_wider_role_is_found() -> None:
    chart = rendered("slurm", values("slurm"))
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "patch"]}
    wider = deepcopy(chart.find("Role", "slurmctld"))
    wider["rules"].append(rule)
    found = changed(Rendered([*chart.manifests, wider]))
    assert Object("", "configmaps", NAMESPACE, "slurm-config") in {Object.of(each) for each in found}


def test_only_published_keys_of_secrets_are_ignored() -> None:
    """The tools must not ignore the other keys: the Secret `slurmd` also contains a file that the chart
    makes from the values."""
    pointers = {
        (each["namespace"], each["name"], pointer.removeprefix("/data/"))
        for each in ignored("slurm")
        for pointer in each["jsonPointers"]
    }
    chart = rendered("slurm", LARGEST["slurm"])
    assert pointers == handed_out(chart)
    templates = {
        (each["metadata"]["namespace"], each["metadata"]["name"], key)
        for each in changed(chart)
        for key in {**each.get("data", {}), **each.get("stringData", {})}
    }
    assert templates - pointers == templates


def test_only_the_ca_bundle_of_webhooks_is_ignored() -> None:
    assert [each["jqPathExpressions"] for each in ignored("slurm-extender")] == [[CA_BUNDLE]] * 2


@pytest.mark.parametrize("chart", CHARTS)
def test_page_names_each_object_that_programs_create(chart: str) -> None:
    made = {each.name for each in made_by_programs(rendered(chart, LARGEST[chart]))}
    assert made
    assert [name for name in sorted(made) if f"`{name}`" not in PAGE] == []


def test_page_names_each_object_that_programs_change() -> None:
    for chart in CHARTS:
        for each in ignored(chart):
            assert re.search(rf"\| {each['kind']} `{each['name']}`", PAGE), each


WAYS = {
    "kubectl apply, as Argo CD": (),
    "server-side apply, as Flux and Helm 4": (
        *("--server-side", "--force-conflicts", "--field-manager=helm-controller"),
    ),
}


def told(cluster: Cluster, verb: str, way: str, objects: list[Manifest]) -> str:
    """Returns kubectl's output. With the verb `diff`, the call fails if there are differences, and the
    error shows them."""
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    return cluster.kubectl(verb, *WAYS[way], "-f", "-", stdin=text).stdout


@pytest.mark.parametrize("way", WAYS)
async def test_published_contents_of_secrets_are_no_difference_and_stay(
    gitops_cluster: Cluster, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    chart = rendered("slurm", LARGEST["slurm"])
    secrets = changed(chart)
    told(gitops_cluster, "apply", way, secrets)
    monkeypatch.setattr(writer, "mint", lambda *_: "a.b.c")
    await hand_all_out(gitops_cluster, chart)
    before = {name: contents(gitops_cluster, *name) for name in map(names, secrets)}
    assert before["slurm", "slurm-token"] == {"token": b"a.b.c"}
    assert len(before["slurm-nodes", "slurmd"]) == 4
    assert told(gitops_cluster, "diff", way, secrets) == ""
    told(gitops_cluster, "apply", way, secrets)
    assert {name: contents(gitops_cluster, *name) for name in before} == before
    told(gitops_cluster, "delete", "kubectl apply, as Argo CD", secrets)


async def hand_all_out(cluster: Cluster, chart: Rendered) -> None:
    """Writes the same keys as the Job `slurm-publish-secrets`. Except for the token, the content of each
    key is some file of the checkout."""
    kubernetes = await KubernetesRest.connect(cluster.kubeconfig)
    places = [Place(*each) for each in sorted(handed_out(chart))]
    (token,) = (each for each in places if each.key == "token")
    copies = [Copy(each, CHECKOUT / "LICENSE") for each in places if each != token]
    try:
        await publish(kubernetes, Wanted(token=token, lifespan_s=60, copies=copies))
    finally:
        await kubernetes.aclose()


def names(manifest: Manifest) -> tuple[str, str]:
    return manifest["metadata"]["namespace"], manifest["metadata"]["name"]


def contents(cluster: Cluster, namespace: str, name: str) -> dict[str, bytes]:
    shown = cluster.kubectl("get", "secret", name, "-n", namespace, "-o", "json").stdout
    data: dict[str, Any] = json.loads(shown)["data"]
    return {key: b64decode(text) for key, text in data.items()}


@pytest.mark.parametrize("way", WAYS)
async def test_ca_bundle_of_the_webhooks_is_no_difference_and_stays(
    gitops_cluster: Cluster, way: str
) -> None:
    configurations = changed(rendered("slurm-extender", LARGEST["slurm-extender"]))
    told(gitops_cluster, "apply", way, configurations)
    kubernetes = await KubernetesRest.connect(gitops_cluster.kubeconfig)
    try:
        await kubernetes.trust("slurm-extender", trustme.CA().cert_pem.bytes())
    finally:
        await kubernetes.aclose()
    before = bundles(gitops_cluster)
    assert before
    assert all(before)
    assert told(gitops_cluster, "diff", way, configurations) == ""
    told(gitops_cluster, "apply", way, configurations)
    assert bundles(gitops_cluster) == before
    told(gitops_cluster, "delete", "kubectl apply, as Argo CD", configurations)


def bundles(cluster: Cluster) -> list[str]:
    """Returns the CA bundle of each webhook in both webhook configurations."""
    kinds = "mutatingwebhookconfigurations,validatingwebhookconfigurations"
    shown = cluster.kubectl("get", kinds, "-o", "json").stdout
    return [
        webhook["clientConfig"].get("caBundle", "")
        for each in json.loads(shown)["items"]
        if each["metadata"]["name"] == "slurm-extender"
        for webhook in each["webhooks"]
    ]
