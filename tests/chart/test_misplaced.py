"""Tests with a real kube-apiserver: if annotations are on an object such as a Deployment, but belong on
the object's Pod template, kube-apiserver warns."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.local.chart import RELEASE, Manifest, Values
from deploy.local.cluster import Cluster
from extender.pod_request.slurm_bridge import NOT_READ, OLD_PREFIX, TABLE
from extender.pod_request.slurm_bridge import PREFIX as BRIDGES
from tests.chart.rendering import rendered
from tests.eventually import eventually

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]  # the machine may be busy

PREFIX = "slurm.example.com/"
POLICY = f"{RELEASE}-misplaced"
KINDS = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
OTHER_KINDS = Path(__file__).with_name("workload_kinds.yaml")
NOTHING: Mapping[str, str] = {}


def template(annotations: Mapping[str, str], **spec: Any) -> Manifest:
    containers = [{"name": "c", "image": "busybox"}]
    metadata = {"labels": {"app": "a"}, "annotations": dict(annotations)}
    return {"metadata": metadata, "spec": {"restartPolicy": "Always", "containers": containers} | spec}


def job_of(made: Manifest, annotations: Mapping[str, str] = NOTHING) -> Manifest:
    """Returns the job template of an object such as a CronJob. `made` is the Pod template."""
    made["spec"]["restartPolicy"] = "Never"
    return {"metadata": {"annotations": dict(annotations)}, "spec": {"template": made}}


def spec_of(kind: str, made: Manifest) -> Manifest:
    """Returns the spec of an object of this kind. `made` is the Pod template."""
    selected = {"selector": {"matchLabels": {"app": "a"}}, "template": made}
    match kind:
        case "Job":
            return {"suspend": True, **job_of(made)["spec"]}
        case "CronJob":
            return {"suspend": True, "schedule": "0 0 * * *", "jobTemplate": job_of(made)}
        case "JobSet":
            other = {"name": "other", "template": job_of(template({}))}
            return {"replicatedJobs": [other, {"name": "a", "template": job_of(made)}]}
        case "LeaderWorkerSet":
            return {"leaderWorkerTemplate": {"workerTemplate": made}}
        case "DaemonSet":
            return selected
        case "StatefulSet":
            return {"replicas": 0, "serviceName": "a", **selected}
        case _:
            return {"replicas": 0, **selected}


VERSIONS = {
    "CronJob": "batch/v1",
    "DaemonSet": "apps/v1",
    "Deployment": "apps/v1",
    "Job": "batch/v1",
    "JobSet": "jobset.x-k8s.io/v1alpha2",
    "LeaderWorkerSet": "leaderworkerset.x-k8s.io/v1",
    "ReplicaSet": "apps/v1",
    "StatefulSet": "apps/v1",
}


def owner(
    name: str, made: Manifest, annotations: Mapping[str, str] = NOTHING, kind: str = "Deployment"
) -> Manifest:
    """Returns an object of this kind. The object has the annotations, and `made` is the Pod template."""
    metadata = {"name": name, "namespace": "team-a", "annotations": dict(annotations)}
    version = VERSIONS[kind]
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec_of(kind, made)}


@pytest.fixture(scope="module")
def installed(release_cluster: Cluster) -> Iterator[Cluster]:
    """Installs the policy of a release with another prefix, for one namespace, before any
    CustomResourceDefinition exists."""
    scope = {"type": "namespace", "namespaces": ["team-a"]}
    settings = {"annotationPrefix": PREFIX, "TAKE_SCHEDULERS": "older, volcano"}
    install(release_cluster, {"scheduler": {"scope": scope}, "extender": {"settings": settings}})
    yield release_cluster
    release_cluster.kubectl("delete", "deployments", "--all", "-n", "team-a")
    for kind in KINDS:
        release_cluster.kubectl("delete", kind, POLICY)


def install(cluster: Cluster, values: Values) -> None:
    """Creates the policy, and waits until kube-apiserver warns about an object."""
    chart = rendered(values)
    found = [chart.find(kind, POLICY) for kind in KINDS]
    cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(found))
    settings = values["extender"]["settings"]
    prefix = settings.get("annotationPrefix", "sunk.coreweave.com/")
    probe = owner("probe", template({}), {f"{prefix}probe": "x"})
    eventually(lambda: "probe" in warned(cluster, [probe]), "the policy is in force")


def warnings(cluster: Cluster, objects: Sequence[Manifest], *options: str) -> list[str]:
    """Returns the warnings of the policy when `kubectl apply` applies the objects."""
    applied = subprocess.run(
        [str(cluster.directory / "bin/kubectl"), "apply", "-f", "-", *options],
        input=yaml.safe_dump_all(objects),
        capture_output=True,
        text=True,
        check=False,
    )
    assert applied.returncode == 0, applied.stderr
    return [line for line in applied.stderr.splitlines() if POLICY in line]


def warned(cluster: Cluster, objects: Sequence[Manifest], *options: str) -> set[str]:
    """Returns the names of the annotations in the warnings, without the prefix."""
    told = "\n".join(warnings(cluster, objects, *(options or ("--dry-run=server",))))
    return set(re.findall(r"(?:slurm\.example|sunk\.coreweave)\.com/([\w-]+)", told))


def test_author_is_warned_of_an_annotation_beside_the_pod_template(installed: Cluster) -> None:
    installed.kubectl("create", "-f", str(OTHER_KINDS))
    installed.kubectl("wait", "--for=condition=Established", "-f", str(OTHER_KINDS), "--timeout=30s")
    try:
        wrong = [
            owner(f"a-{kind}".lower(), template({}), {f"{PREFIX}on-{kind}": "x"}, kind)
            for kind in VERSIONS
        ]
        assert warned(installed, wrong) == {f"on-{kind}" for kind in VERSIONS}
        right = [
            owner(f"a-{kind}".lower(), template({f"{PREFIX}on-{kind}": "x"}), annotations, kind)
            for kind in VERSIONS
            for annotations in (NOTHING, {f"{PREFIX}on-{kind}": "x", "example.org/x": "z"})
        ]
        assert warned(installed, right) == set()
    finally:
        installed.kubectl("delete", "-f", str(OTHER_KINDS))


def test_author_is_warned_of_an_annotation_on_a_job_template(installed: Cluster) -> None:
    made = owner("a", template({}), kind="CronJob")
    made["spec"]["jobTemplate"] = job_of(template({}), {f"{PREFIX}inner": "x"})
    assert warned(installed, [made]) == {"inner"}


def test_author_is_warned_of_all_annotations_of_an_object_at_once(installed: Cluster) -> None:
    made = owner("a", template({PREFIX + "c": "1"}), {PREFIX + name: "1" for name in "abc"})
    (told,) = warnings(installed, [made], "--dry-run=server")
    advice = "these annotations do nothing, write them into the metadata of the Pod template: "
    assert set(told.split(advice)[1].split(", ")) == {PREFIX + "a", PREFIX + "b"}


def test_pods_of_other_schedulers_and_namespaces_cause_no_warning(installed: Cluster) -> None:
    wish = {PREFIX + "x": "x"}
    foreign = owner("a", template({}, schedulerName="another"), wish)
    outside = owner("b", template({}), wish)
    outside["metadata"]["namespace"] = "team-b"
    assert warned(installed, [foreign, outside]) == set()
    for named in ("slurm-scheduler", "volcano", "older"):
        assert warned(installed, [owner("a", template({}, schedulerName=named), wish)]) == {"x"}


def test_copies_of_controllers_and_unrelated_changes_cause_no_warning(installed: Cluster) -> None:
    """The Deployment controller copies a Deployment's annotations to the ReplicaSets. A warning about a
    ReplicaSet would be wrong."""
    made = owner("a", template({}), {PREFIX + "x": "x"})
    assert warned(installed, [made], "--wait") == {"x"}

    def copy() -> str:
        listed = installed.kubectl("get", "replicasets", "-n", "team-a", "-o", "json").stdout
        copies = (each["metadata"] for each in json.loads(listed)["items"])
        with_it = (each["name"] for each in copies if PREFIX + "x" in each["annotations"])
        return next((f"replicaset/{name}" for name in with_it), "")

    name = eventually(copy, "the ReplicaSet has the annotation")
    scale = ("scale", "deployment/a", "--replicas=0")
    for change in (("annotate", name, "x=y"), ("label", "deployment/a", "x=y"), scale):
        assert POLICY not in installed.kubectl(*change, "-n", "team-a").stderr
    made["spec"]["minReadySeconds"] = 1
    assert warned(installed, [made], "--wait") == {"x"}


def bridges(prefix: str) -> dict[str, str]:
    return {prefix + name: "1" for name in (*(row.name for row in TABLE), *NOT_READ)}


def named(told: Sequence[str], prefix: str) -> set[str]:
    """Returns the names in the warnings that have this prefix, without the prefix."""
    return set(re.findall(rf"(?<![\w.]){re.escape(prefix)}[\w-]+", "\n".join(told)))


@pytest.mark.parametrize("prefix", [BRIDGES, OLD_PREFIX])
def test_author_is_warned_of_slurm_bridges_annotations_that_are_not_read(
    installed: Cluster, prefix: str
) -> None:
    """The names in the chart's policy must include each name that the extender knows."""
    others = {OLD_PREFIX + "slurm-node": "n1", OLD_PREFIX + "slurm-key-hash": "x"}
    on_object = owner("a", template({}), bridges(prefix) | others, "Job")
    told = warnings(installed, [on_object], "--dry-run=server")
    assert named(told, prefix) == bridges(prefix).keys()
    assert "if SLURM_EXTENDER_SLURM_BRIDGE_ANNOTATIONS is true" in told[0]
    on_template = owner("a", template(bridges(prefix) | others), kind="Job")
    told = warnings(installed, [on_template], "--dry-run=server")
    assert named(told, prefix) == bridges(prefix).keys()


@pytest.mark.parametrize("prefix", [BRIDGES, OLD_PREFIX])
def test_author_is_warned_of_slurm_bridges_annotations_beside_the_template(
    release_cluster: Cluster, installed: Cluster, prefix: str
) -> None:
    install(release_cluster, {"extender": {"settings": {"slurmBridgeAnnotations": True}}})
    on_object = owner("a", template({}), bridges(prefix), "Job")
    told = warnings(installed, [on_object], "--dry-run=server")
    assert named(told, prefix) == bridges(prefix).keys()
    assert "write them into the metadata of the Pod template" in told[0]
    on_template = owner("a", template(bridges(prefix)), kind="Job")
    assert warnings(installed, [on_template], "--dry-run=server") == []
