"""Tests of docs/tasks/migrate.md: Pods of SUNK's scheduler are left alone, and the page's values take
over the Pods of one namespace."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.local.chart import Rendered, values_of
from deploy.local.cluster import Cluster
from deploy.local.kubernetes.config import ca_bundle
from deploy.local.layout import CHECKOUT, Layout
from deploy.local.programs.helm_binary import helm
from deploy.local.progress import silent
from deploy.local.spec import ClusterSpec
from tests.documentation.commands import commands
from tests.documentation.pages import blocks
from tests.documentation.test_commands import Shell
from tests.end_to_end.actors import Actors, Manifest, pod
from tests.eventually import eventually
from wellknown.job_key import job_name

pytestmark = pytest.mark.real

PAGE = CHECKOUT / "docs/tasks/migrate.md"
TEST = "tests/end_to_end/test_migrate.py"
MANIFESTS: list[Manifest] = [
    yaml.safe_load(block.text)
    for block in blocks(PAGE)
    if block.mark and block.mark.what in ("whole-node.yaml", "one-gpu.yaml")
]
VALUES: dict[str, Any] = yaml.safe_load(
    next(block.text for block in blocks(PAGE) if "takeSchedulers: [" in block.text)
)
(TAKEN,) = VALUES["scheduler"]["scope"]["namespaces"]
"""The namespace that the page's values take over. SUNK keeps the Pods of the namespace `default`."""
DEFAULTS = (("SHARED_GPUS", "isolate"),)
"""Settings that local clusters change, with the product's defaults."""
WITH_INFINIBAND = ("node-2", "node-3")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Starts a cluster with the chart's default values. node-2 and node-3 have an InfiniBand device,
    which Slurm does not count."""
    spec = ClusterSpec(
        nodes=3,
        cpus_per_node=16,
        gpus_per_node=8,
        kill_wait=30,
        own_scheduler=True,
        policy="preset: restricted\nrules: []\n",
        extender_settings=DEFAULTS,
    )
    with (
        tempfile.TemporaryDirectory(prefix="migrate-") as directory,
        Cluster.up(spec, Path(directory)) as running,
    ):
        added = json.dumps({"status": {kind: {"rdma/ib": "1"} for kind in ("capacity", "allocatable")}})
        for node in WITH_INFINIBAND:
            running.kubectl("patch", "node", node, "--subresource=status", "-p", added)
        running.kubectl("create", "namespace", TAKEN)
        yield running


@pytest.fixture(scope="module")
def all_actors(cluster: Cluster) -> Iterator[Actors]:
    actors = Actors(cluster)
    yield actors
    actors.close()


@pytest.fixture
def inside(cluster: Cluster) -> Iterator[Actors]:
    """The actors of the namespace that the page's values take over."""
    actors = Actors(cluster, TAKEN)
    yield actors
    actors.clean_up()
    actors.close()


@pytest.fixture(scope="module")
def upgraded(cluster: Cluster) -> None:
    """Upgrades to the page's values, and waits until kube-apiserver has read the webhooks again."""
    upgrade(cluster)
    actors = Actors(cluster, TAKEN)

    def told() -> bool:
        return all(warning_of_the_page() in warned(actors, each) for each in MANIFESTS)

    eventually(told, "each author is warned")
    actors.close()


@pytest.fixture
def shell(cluster: Cluster, tmp_path: Path) -> Shell:
    """A shell with the page's files."""
    shell = Shell(cluster, tmp_path)
    shell.write(PAGE)
    return shell


def test_default_values_leave_pods_of_another_scheduler_untouched(actors: Actors) -> None:
    """The test plays SUNK's scheduler, and binds the Pods. A Pod for kube-scheduler with an annotation
    for Slurm is rejected, because no rule of the policy matches."""
    wrong = pod("wrong", annotations={"timeout": "soon"}, scheduler="volcano")
    manifests = {each["metadata"]["name"]: each for each in (*MANIFESTS, wrong)}
    for name, manifest in manifests.items():
        created = actors.kubectl("create", "-f", "-", stdin=yaml.safe_dump(manifest))
        assert (created.returncode, created.stderr) == (0, "")
        bind(actors, name, "node-2")
    eventually(lambda: {phase_of(actors, name) for name in manifests} == {"Running"}, "all run")
    for name, stored in actors.pods().items():
        assert stored["metadata"]["annotations"] == manifests[name]["metadata"]["annotations"]
        assert stored["spec"]["schedulerName"] == manifests[name]["spec"]["schedulerName"]
    assert actors.jobs() == []
    unnamed = pod("unnamed", annotations={"exclusive": "none"}, scheduler="default-scheduler")
    assert "Slurm cannot run this Pod" in actors.apply(unnamed).stderr


def bind(actors: Actors, name: str, node: str) -> None:
    binding = {"metadata": {"name": name}, "target": {"apiVersion": "v1", "kind": "Node", "name": node}}
    actors.api.post(f"/pods/{name}/binding", json=binding).raise_for_status()


def phase_of(actors: Actors, name: str) -> str:
    return str(actors.pods()[name]["status"]["phase"])


@pytest.mark.usefixtures("upgraded")
def test_pods_run_as_the_page_shows_after_the_upgrade(inside: Actors, shell: Shell) -> None:
    for each in MANIFESTS:
        assert f"spec.template: {warning_of_the_page()}" in warned(inside, deployment(each))
    for block in blocks(PAGE):
        if block.mark and block.mark.what == TEST:
            for command in commands(block):
                shell.type(command)
    training, inference = job_of(inside, "training"), job_of(inside, "inference")
    assert training.items() >= {
        ("UserId", "alice(2001)"),
        ("Exclusive", "NODE"),
        ("NumCPUs", "16"),
        ("TresPerNode", "gres/gpu:8"),
    }
    assert training["NodeList"] in WITH_INFINIBAND
    assert inference.items() >= {
        ("UserId", "alice(2001)"),
        ("GroupId", "alice(2001)"),
        ("Exclusive", "USER"),
        ("NumCPUs", "2"),
        ("TresPerNode", "gres/gpu:1"),
    }
    for name, job in (("training", training), ("inference", inference)):
        assert inside.pods()[name]["spec"]["nodeName"] == job["NodeList"]
    assert inference["NodeList"] != training["NodeList"]


@pytest.mark.usefixtures("upgraded")
def test_pods_of_other_namespaces_and_users_are_not_taken_over(actors: Actors, inside: Actors) -> None:
    for each in MANIFESTS:
        assert warned(actors, each) == ""
    assert warned(inside, pod("other", annotations={"timeout": "soon"}, scheduler="volcano")) == ""
    root = pod("root", annotations={"user-id": "0"}, scheduler=MANIFESTS[0]["spec"]["schedulerName"])
    assert 'user-id: "0" is not allowed by the policy' in warned(inside, root)


def warned(actors: Actors, manifest: Manifest) -> str:
    """Returns the warnings for the author of an object in the actors' namespace, or the rejection."""
    metadata = {**manifest["metadata"], "namespace": actors.namespace}
    given = yaml.safe_dump({**manifest, "metadata": metadata})
    return actors.kubectl("create", "--dry-run=server", "-f", "-", stdin=given).stderr


def job_of(actors: Actors, name: str) -> dict[str, str]:
    """Returns the fields that scontrol shows for the job of one of the page's Pods."""
    job = actors.squeue()[job_name(actors.namespace, name)]
    shown = actors.cluster.run_slurm("scontrol", "show", "job", str(job.id)).stdout
    return dict(word.split("=", 1) for word in shown.split() if "=" in word)


def warning_of_the_page() -> str:
    """Returns the warning as the page quotes it."""
    (found,) = re.findall(r"`(schedulerName: [^`]+)`", PAGE.read_text())
    return str(found)


def deployment(manifest: Manifest) -> Manifest:
    """Returns a Deployment with the Pod as the template."""
    labels = {"app": "d"}
    metadata = {**manifest["metadata"], "labels": labels}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": metadata, "spec": manifest["spec"]},
        },
    }


def upgrade(cluster: Cluster) -> None:
    """Upgrades the release to the page's values."""
    cluster.policy_file.write_text(yaml.safe_dump(VALUES["policy"]))
    taken = ",".join(VALUES["extender"]["settings"]["takeSchedulers"])
    settings = (*DEFAULTS, ("TAKE_SCHEDULERS", taken))
    spec = replace(cluster.spec, extender_settings=settings, namespaces=(TAKEN,))
    authority = ca_bundle(Layout(cluster.directory))
    values = values_of(spec, cluster.ports["extender-admission"], authority)
    chart = Rendered.of(helm(silent), values).wanted(spec)
    webhooks = [each for each in chart if each["kind"].endswith("WebhookConfiguration")]
    cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(webhooks))
    cluster.stop("extender")
    given = {"SLURM_EXTENDER_TAKE_SCHEDULERS": taken, "SLURM_EXTENDER_SCOPE": TAKEN}
    cluster.start("extender", env=given)
