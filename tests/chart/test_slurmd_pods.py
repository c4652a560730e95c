"""Tests with a real kube-apiserver: a node agent may create slurmd Pods only from the templates of the
pools."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

import httpx
import pytest

from deploy.local.chart import POOLS_NAMESPACE, Manifest
from deploy.local.cluster import Cluster
from extender.pools.template_uses import config_map
from node_agent.slurmd.images import pull_pod
from node_agent.slurmd.manifest import Found, manifest
from tests.chart.rendering import roles_and_policies
from tests.chart_matrix import POOLS, merged
from tests.end_to_end.actors import pod
from tests.end_to_end.agent_account import token_of_a_pod
from tests.end_to_end.caller import Caller
from tests.eventually import eventually
from wellknown.names import POOL, REVISION
from wellknown.slurmd_pod import Assignment

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]  # the machine may be busy

CURE = "add it there, or exempt slurmd Pods from the mutating webhook that adds it"
ADMISSION = (
    "The ServiceAccount default adds its imagePullSecrets to a Pod whose template names none: name them"
    " in the template"
)
NODE = {"metadata": {"name": "node-1", "uid": "a", "labels": {}}, "status": {}}
ASSIGNED = Assignment("gpu", "gpu-1")
PLAIN = {"spec": {"containers": [{"name": "slurmd", "image": "slurmd:1"}]}}
ISCSI = {"targetPortal": "10.0.0.1:3260", "iqn": "iqn.2026-01.com.example:a", "lun": 0}
RICH: Manifest = {
    "spec": {
        "hostPID": True,
        "hostNetwork": True,
        "imagePullSecrets": [{"name": "for-pulls"}],
        "initContainers": [
            {
                "name": "init",
                "image": "init:2",
                "env": [{"name": "E", "valueFrom": {"secretKeyRef": {"name": "by-env", "key": "k"}}}],
                "envFrom": [{"secretRef": {"name": "by-all-env"}}],
            }
        ],
        "containers": [{"name": "slurmd", "image": "slurmd:3"}],
        "volumes": [
            {"name": "s", "secret": {"secretName": "by-volume"}},
            {"name": "p", "projected": {"sources": [{"secret": {"name": "by-projected"}}]}},
            {"name": "c", "csi": {"driver": "d", "nodePublishSecretRef": {"name": "by-csi"}}},
            {"name": "i", "iscsi": ISCSI | {"secretRef": {"name": "by-iscsi"}}},
            {"name": "a", "azureFile": {"shareName": "a", "secretName": "by-azure"}},
            {"name": "h", "hostPath": {"path": "/scratch"}},
        ],
    }
}
ADOPTS = {"extender": {"settings": {"unmanagedPods": "adopt"}}}
"""With these values, another policy applies: only some accounts may create Pods with a Node. Agents
may."""
TEMPLATES = {"gpu-1": PLAIN, "gpu-2": RICH}


def data(template: Manifest) -> Manifest:
    return {"controllers": ["slurmctld:6817"], "scripts": ["early"], "template": template}


def revisions(templates: Mapping[str, Manifest]) -> list[Manifest]:
    return [
        {"metadata": {"name": name, "labels": {POOL: "gpu"}}, "data": data(template)}
        for name, template in templates.items()
    ]


def made(assignment: Assignment, template: Manifest) -> Manifest:
    """Returns the slurmd Pod that the agent creates for this assignment."""
    return dict(manifest(assignment, data(template), Found(NODE, "n1"), POOLS_NAMESPACE))


def changed(**spec: Any) -> Manifest:
    """Returns the slurmd Pod of a plain template. `spec` adds fields to the Pod's spec."""
    plain = made(ASSIGNED, PLAIN)
    for name, value in spec.items():
        before = plain["spec"].get(name)
        plain["spec"][name] = [*(before or ()), *value] if isinstance(value, list) else value
    return plain


def volume(**source: Any) -> Manifest:
    return changed(volumes=[{"name": "added", **source}])


def container(**given: Any) -> Manifest:
    return changed(containers=[{"name": "added", "image": "slurmd:1", **given}])


@pytest.fixture(scope="module")
def agent(release_cluster: Cluster) -> Iterator[Caller]:
    """The agent of node-1, while the ConfigMap that the leader writes exists. First checks that the
    agent may create slurmd Pods while the ConfigMap does not exist, as during an upgrade of the
    chart."""
    with (
        roles_and_policies(release_cluster, merged(POOLS, ADOPTS)),
        token_of_a_pod(release_cluster, "node-1") as token,
        closing(Caller(release_cluster, token)) as caller,
        closing(Caller(release_cluster)) as admin,
    ):
        path = f"/api/v1/namespaces/{POOLS_NAMESPACE}/configmaps"
        unnamed, more = changed(), container(image="elsewhere")
        del unnamed["metadata"]["labels"][REVISION]
        eventually(lambda: not create(caller, unnamed).is_success, "the other policy is in force")
        eventually(lambda: create(caller, more).is_success, "the role is in force")
        other = pod("other", scheduler="default-scheduler")
        admin.ask("POST", "/api/v1/namespaces/default/pods?dryRun=All", other).raise_for_status()
        uses = config_map(POOLS_NAMESPACE, revisions(TEMPLATES))
        admin.ask("POST", path, uses).raise_for_status()
        eventually(lambda: not create(caller, more).is_success, "the policy knows the templates")
        yield caller
        admin.ask("DELETE", f"{path}/{uses['metadata']['name']}").raise_for_status()


def create(agent: Caller, pod: Manifest) -> httpx.Response:
    return agent.ask("POST", f"/api/v1/namespaces/{POOLS_NAMESPACE}/pods?dryRun=All", pod)


@pytest.mark.parametrize("name", TEMPLATES)
def test_agent_creates_the_pod_of_each_template(agent: Caller, name: str) -> None:
    create(agent, made(Assignment("gpu", name), TEMPLATES[name])).raise_for_status()


@pytest.mark.parametrize(
    ("made_pod", "named"),
    [
        (changed(hostPID=True), "hostPID=true"),
        (changed(hostIPC=True), "hostIPC=true"),
        (changed(hostNetwork=True), "hostNetwork=true"),
        (container(image="elsewhere"), "image=elsewhere"),
        (changed(initContainers=[{"name": "added", "image": "elsewhere"}]), "image=elsewhere"),
        (volume(hostPath={"path": "/"}), "hostPath=/"),
        (volume(secret={"secretName": "s"}), "volume=secret, secret=s"),
        (volume(projected={"sources": [{"secret": {"name": "s"}}]}), "secret=s"),
        (volume(csi={"driver": "d"}), "volume=csi"),
        (volume(persistentVolumeClaim={"claimName": "c"}), "volume=persistentVolumeClaim"),
        (container(envFrom=[{"secretRef": {"name": "s"}}]), "secret=s"),
        (
            container(env=[{"name": "E", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]),
            "secret=s",
        ),
    ],
)
def test_agent_creates_no_pod_with_more_than_its_template(
    agent: Caller, made_pod: Manifest, named: str
) -> None:
    refused = create(agent, made_pod)
    assert refused.status_code == httpx.codes.FORBIDDEN, refused.text
    assert refused.json()["message"].endswith(f"the template of the pool does not use {named}: {CURE}")


def test_agent_creates_no_pod_with_other_pull_secrets(agent: Caller) -> None:
    """The kubelet of a Node may read each Secret that a Pod on the Node names. So an agent could read
    foreign Secrets by naming them as pull secrets."""
    refused = create(agent, changed(imagePullSecrets=[{"name": "s"}]))
    assert refused.status_code == httpx.codes.FORBIDDEN, refused.text
    assert refused.json()["message"].endswith(f"imagePullSecret=s: {CURE}. {ADMISSION}")


def test_agent_pulls_images_with_the_pull_secrets_of_the_template(agent: Caller) -> None:
    spec, assigned = RICH["spec"], Assignment("gpu", "gpu-2")
    pull = dict(pull_pod(assigned, spec["containers"], spec, NODE["metadata"], POOLS_NAMESPACE))
    create(agent, pull).raise_for_status()
    pull["spec"]["imagePullSecrets"] = [{"name": "by-volume"}]
    refused = create(agent, pull)
    assert refused.status_code == httpx.codes.FORBIDDEN, refused.text
    assert "does not use imagePullSecret=by-volume" in refused.json()["message"]


def test_agent_creates_no_pod_with_contents_of_another_template(agent: Caller) -> None:
    message = str(create(agent, made(ASSIGNED, RICH)).json()["message"])
    names = ("by-env", "by-all-env", "by-volume", "by-projected", "by-csi", "by-iscsi", "by-azure")
    wanted = {f"secret={name}" for name in names} | {"hostPID=true", "image=slurmd:3", "volume=csi"}
    told = message.partition("does not use ")[2].removesuffix(f": {CURE}. {ADMISSION}").split(", ")
    assert {*wanted, "imagePullSecret=for-pulls"} <= set(told)


@pytest.mark.parametrize("revision", ["gpu-3", ""])
def test_agent_creates_no_pod_with_an_unknown_revision(agent: Caller, revision: str) -> None:
    other = changed()
    other["metadata"]["labels"][REVISION] = revision
    refused = create(agent, other)
    assert refused.status_code == httpx.codes.FORBIDDEN
    told = f"the ConfigMap slurmd-templates does not have the revision {revision}: the leader writes it"
    assert refused.json()["message"].endswith(told)


def test_agent_creates_no_pod_without_a_revision(agent: Caller) -> None:
    other = changed()
    del other["metadata"]["labels"][REVISION]
    refused = create(agent, other)
    assert refused.status_code == httpx.codes.FORBIDDEN
    assert "a slurmd Pod names the revision of its template" in refused.json()["message"]
