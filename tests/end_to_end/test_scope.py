"""Tests of the scope: the namespace, the labels and the requests decide if Slurm places a Pod. Other
Pods are left alone."""

from __future__ import annotations

import json
import shlex
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.local.chart import RELEASE, Rendered
from deploy.local.cluster import Cluster
from deploy.local.layout import CHECKOUT
from deploy.local.programs.helm_binary import helm
from deploy.local.progress import silent
from deploy.local.spec import ClusterSpec
from tests.chart_matrix import EXISTING, merged, with_needed
from tests.end_to_end.actors import Actors, Manifest, pod
from tests.eventually import eventually
from wellknown.names import CAPACITY_FREED

pytestmark = pytest.mark.real

DOMAIN = "slurm-extender.io/"
EXTENDERS = "slurm-extender"
"""Namespace of a release."""
OPEN = "preset: open\nrules: []\n"


@pytest.fixture(scope="module")
def scoped() -> Iterator[Cluster]:
    """Starts a cluster with the namespaces `ml`, `every` and `selected` in scope. The label on `every`
    sends every Pod to Slurm, except the Pods that docs/concepts/scope.md names."""
    spec = ClusterSpec(nodes=1, namespaces=("ml", "every", "selected"))
    with (
        tempfile.TemporaryDirectory(prefix="scope-") as directory,
        Cluster.up(spec, Path(directory)) as cluster,
    ):
        cluster.policy_file.write_text(OPEN)
        cluster.kubectl("label", "namespace", "every", DOMAIN + "every-pod=true")
        yield cluster


@contextmanager
def living_in(namespace: str, cluster: Cluster) -> Iterator[Actors]:
    actors = Actors(cluster, namespace)
    try:
        yield actors
        actors.clean_up()
    finally:
        actors.close()


@pytest.fixture
def inside(scoped: Cluster) -> Iterator[Actors]:
    with living_in("ml", scoped) as actors:
        yield actors


@pytest.fixture
def outside(scoped: Cluster) -> Iterator[Actors]:
    with living_in("default", scoped) as actors:
        yield actors


@contextmanager
def settings(cluster: Cluster, **given: str) -> Iterator[None]:
    """Runs the extender with other settings during the block."""
    cluster.stop("extender")
    cluster.start("extender", env={f"SLURM_EXTENDER_{name}": value for name, value in given.items()})
    try:
        yield
    finally:
        cluster.stop("extender")
        cluster.start("extender")


def bound(actors: Actors, name: str) -> Manifest:
    actors.bound(name)
    seen = actors.see(name)
    assert seen is not None
    return seen


def placed_by_slurm(actors: Actors, name: str) -> bool:
    """Returns True if a bound Pod has a job. Asserts that a Pod without a job has no annotations of the
    extender."""
    seen = bound(actors, name)
    job = actors.job_of(name)
    notes = set(seen["metadata"].get("annotations") or {})
    marks = {key for key in notes if key.startswith(DOMAIN)} - {CAPACITY_FREED}
    assert bool(job) == bool(marks)
    return job is not None


@pytest.mark.parametrize(
    "asks",
    [
        pytest.param(
            {"scheduler": "default-scheduler", "annotations": {"comment": "x"}}, id="annotation"
        ),
        pytest.param({"scheduler": "slurm-scheduler"}, id="schedulerName"),
        pytest.param({"scheduler": "slurm-scheduler", "annotations": {"comment": "x"}}, id="both"),
    ],
)
def test_pod_that_requests_slurm_is_placed_by_slurm_only_in_scope(
    asks: dict[str, Any], inside: Actors, outside: Actors
) -> None:
    for actors in (inside, outside):
        actors.create("p", **asks)
    assert placed_by_slurm(inside, "p")
    assert not placed_by_slurm(outside, "p")
    untouched = bound(outside, "p")
    assert untouched["spec"]["schedulerName"] == asks["scheduler"]


def test_pod_in_scope_that_does_not_request_slurm_is_left_alone(inside: Actors) -> None:
    inside.create("p", scheduler="default-scheduler")
    assert not placed_by_slurm(inside, "p")


def test_invalid_annotation_out_of_scope_is_ignored(outside: Actors) -> None:
    outside.create("p", annotations={"timeout": "soon"}, scheduler="default-scheduler")
    assert not placed_by_slurm(outside, "p")


@pytest.mark.parametrize("note", [{"job-id": "1"}, {"attempt": "2"}])
def test_extender_annotations_are_dropped_out_of_scope(outside: Actors, note: dict[str, str]) -> None:
    """The Pod is like a copy of a managed Pod (kubectl debug --copy-to)."""
    noted = {DOMAIN + key: value for key, value in note.items()}
    assert outside.apply(pod("p", own_annotations=noted)).returncode == 0
    (manifest,) = outside.pods().values()
    assert not noted.keys() & (manifest["metadata"].get("annotations") or {}).keys()


def test_first_attempt_annotation_is_accepted_only_at_creation(outside: Actors) -> None:
    assert outside.apply(pod("p", own_annotations={DOMAIN + "attempt": "1"})).returncode == 0
    outside.create("q", scheduler="default-scheduler")
    later = outside.kubectl("annotate", "pod", outside.full("q"), DOMAIN + "attempt=1")
    assert "the extender's to write" in later.stderr


def test_critical_pods_need_no_extender_in_an_every_pod_namespace(scoped: Cluster) -> None:
    scoped.stop("extender")
    try:
        with living_in("every", scoped) as actors:
            critical = pod("p", scheduler="default-scheduler", priorityClassName="system-node-critical")
            critical["metadata"]["namespace"] = "every"
            answer = actors.apply(critical)
            assert answer.returncode == 0, answer.stderr
            ordinary = pod("q", scheduler="default-scheduler")
            ordinary["metadata"]["namespace"] = "every"
            assert actors.apply(ordinary).returncode != 0
    finally:
        scoped.start("extender")


def test_a_namespace_can_send_all_its_pods_to_slurm(scoped: Cluster) -> None:
    with living_in("every", scoped) as actors:
        actors.create("p", scheduler="default-scheduler")
        assert placed_by_slurm(actors, "p")
        actors.create("other", scheduler="other")
        seen = actors.see("other")
        assert seen is not None
        assert "schedulingGates" not in seen["spec"]
        answer = actors.apply(without_requests("every"))
        assert answer.returncode != 0
        assert "the Pod requests no cpu" in answer.stderr
        answer = actors.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(deployment("every")))
        assert answer.returncode == 0
        assert "spec.template: Pods would be refused: the Pod requests no cpu" in answer.stderr
        actors.kubectl("delete", "-n", "every", "deployment", "d")


def without_requests(namespace: str) -> Manifest:
    made = pod("bare", cpu=None, scheduler="default-scheduler")
    made["metadata"]["namespace"] = namespace
    return made


def deployment(namespace: str) -> Manifest:
    """Returns a Deployment without replicas."""
    labels = {"app": "d"}
    made = pod("unnamed", cpu=None, scheduler="default-scheduler")
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d", "namespace": namespace},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": made["spec"]},
        },
    }


def test_pods_out_of_scope_are_created_while_the_extender_is_down(
    inside: Actors, outside: Actors
) -> None:
    """kube-apiserver calls the webhooks only for Pods in scope."""
    inside.cluster.stop("extender")
    try:
        asking = pod("p", annotations={"comment": "x"})
        assert outside.apply(asking).returncode == 0
        asking = pod("p", annotations={"comment": "x"})
        asking["metadata"]["namespace"] = "ml"
        answer = inside.apply(asking)
        assert answer.returncode != 0
        assert "pods.slurm-extender.io" in answer.stderr
    finally:
        inside.cluster.start("extender")
    assert not placed_by_slurm(outside, "p")


@contextmanager
def _namespace(actors: Actors, name: str) -> Iterator[None]:
    actors.cluster.kubectl("create", "namespace", name)
    try:
        yield
    finally:
        actors.cluster.kubectl("delete", "namespace", name, "--timeout=60s")


def _replicas(actors: Actors, deployment: str) -> list[Manifest]:
    """Returns the Pods of a Deployment in the extender's namespace."""
    listed = actors.kubectl("get", "pods", "-n", EXTENDERS, "-o", "json")
    pods: list[Manifest] = json.loads(listed.stdout)["items"]
    return [each for each in pods if each["metadata"]["generateName"].startswith(f"{deployment}-")]


def _runs(actors: Actors, deployment: str) -> list[str]:
    pods = _replicas(actors, deployment)
    return [each["spec"]["nodeName"] for each in pods if each["status"]["phase"] == "Running"]


def test_replicas_come_back_while_kube_scheduler_binds_no_pod(scoped: Cluster, tmp_path: Path) -> None:
    """With `extender.nodeNames`, the replica needs no kube-scheduler. Without node names, the
    administrator binds the replica by the commands of docs/concepts/scope.md. kube-scheduler asks the
    extender about all Pods here, and no extender runs."""
    waiting = Rendered.of(helm(silent), with_needed(EXISTING)).find("Deployment", RELEASE)
    values = merged(EXISTING, {"extender": {"nodeNames": ["node-1"]}})
    named = Rendered.of(helm(silent), with_needed(values)).find("Deployment", f"{RELEASE}-0")
    for each in (waiting, named):
        each["metadata"]["namespace"] = EXTENDERS
    waiting["metadata"]["name"] = "waiting"
    named["metadata"]["name"] = "named"
    scoped.stop("extender")
    try:
        with living_in("default", scoped) as actors, _namespace(actors, EXTENDERS):
            for each in (waiting, named):
                scoped.kubectl("create", "-f", "-", stdin=yaml.safe_dump(each))
            eventually(lambda: _runs(actors, "named") == ["node-1"], "the named replica runs")

            def why() -> str:
                return str([each["status"].get("conditions") for each in _replicas(actors, "waiting")])

            eventually(lambda: "/scheduler/filter" in why(), "kube-scheduler has asked the extender")
            assert _runs(actors, "waiting") == []
            first = _replicas(actors, "waiting")[0]["metadata"]["name"]
            file, *shown = way_back(first, "node-1")
            (tmp_path / "binding.json").write_text(file)
            for command in shown:
                told = actors.kubectl(*shlex.split(command)[1:], cwd=tmp_path)
                assert told.returncode == 0, told.stderr
            eventually(lambda: _runs(actors, "waiting") == ["node-1"], "the bound replica runs")
    finally:
        scoped.start("extender")


def way_back(name: str, node: str) -> list[str]:
    """Returns the file and the commands of docs/concepts/scope.md, for a Pod and a Node."""
    page = (CHECKOUT / "docs/concepts/scope.md").read_text().partition("<!-- file: binding.json -->")[2]
    file, *commands = [line[4:] for line in page.splitlines() if line.startswith("    ")]
    lines = (file, *(each.removeprefix("$ ") for each in commands))
    return [each.replace("POD", name).replace("NODE", node) for each in lines]


def test_only_running_pods_stay_if_their_namespace_leaves_the_scope(inside: Actors) -> None:
    inside.create("runs", cpu="8")
    assert placed_by_slurm(inside, "runs")
    inside.create("waits", cpu="8")
    inside.queued("waits")
    with settings(inside.cluster, SCOPE="selected"):
        eventually(lambda: inside.condition("waits").get("reason") == "Invalid", "it is told")
        assert inside.condition("waits")["message"].startswith("namespace ml is out of scope: selected")
        eventually(lambda: inside.job_of("waits") is None, "its job is gone")
        assert placed_by_slurm(inside, "runs")
        assert inside.node_of("waits") is None
    inside.queued("waits")
    inside.delete("runs")
    assert placed_by_slurm(inside, "waits")


def test_labels_select_pods(inside: Actors) -> None:
    with settings(inside.cluster, POD_SELECTOR="slurm in (yes, always)"):
        inside.create("plain")
        assert not placed_by_slurm(inside, "plain")
        inside.delete("plain")
        inside.gone("plain")
        inside.create("runs", cpu="8", labels={"slurm": "always"})
        assert placed_by_slurm(inside, "runs")
        inside.create("waits", cpu="8", labels={"slurm": "yes"})
        inside.queued("waits")
        inside.kubectl("label", "-n", "ml", "pod", inside.full("waits"), "slurm-")
        eventually(lambda: inside.condition("waits").get("reason") == "Invalid", "it is told")
        assert "labels are out of scope: slurm in (yes, always)" in inside.condition("waits")["message"]
        inside.kubectl("label", "-n", "ml", "pod", inside.full("waits"), "slurm=yes")
        inside.queued("waits")
        inside.kubectl("label", "-n", "ml", "pod", inside.full("runs"), "slurm-")
        inside.scancel("runs")  # still a managed Pod: the end of the job ends the Pod
        inside.gone("runs")
        assert placed_by_slurm(inside, "waits")
