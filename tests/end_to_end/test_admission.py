"""Tests of the messages that an author gets at `kubectl apply`, before anything runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from subprocess import CompletedProcess
from typing import Any

import pytest

from tests.end_to_end.actors import PREFIX, Actors, Manifest, pod
from tests.eventually import eventually
from wellknown.allocation import Allocation

pytestmark = pytest.mark.real

VALIDATION = "validatingwebhookconfiguration/slurm-extender"


@pytest.fixture
def applied(actors: Actors) -> Iterator[list[Manifest]]:
    """Objects of other kinds than Pod. After the test, all objects are deleted."""
    objects: list[Manifest] = []
    yield objects
    for each in objects:
        actors.cluster.kubectl("delete", each["kind"], each["metadata"]["name"], "--ignore-not-found")


def workload(kind: str, version: str, spec: Manifest) -> Manifest:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": kind.lower()}, "spec": spec}


def template(**annotations: str) -> Manifest:
    """Returns a Pod template that requests Slurm."""
    made = pod("unnamed", annotations=annotations, terminationGracePeriodSeconds=10)
    labels = {"app": "p"}
    return {
        "metadata": {"labels": labels, "annotations": made["metadata"]["annotations"]},
        "spec": made["spec"],
    }


def deployment(**annotations: str) -> Manifest:
    spec = {"selector": {"matchLabels": {"app": "p"}}, "template": template(**annotations)}
    return workload("Deployment", "apps/v1", {"replicas": 0} | spec)


def custom_kind(group: str, kind: str, version: str) -> Manifest:
    """Returns a CustomResourceDefinition that accepts any spec."""
    plural = kind.lower() + "s"
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": anything}}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{group}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
        },
        "spec": {
            "group": group,
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "scope": "Namespaced",
            "versions": [{"name": version, "served": True, "storage": True, "schema": schema}],
        },
    }


def define(actors: Actors, made: Manifest) -> None:
    """Creates the kind of an object, if Kubernetes does not have the kind."""
    group, _, version = made["apiVersion"].rpartition("/")
    if group.endswith(".x-k8s.io"):
        definition = custom_kind(group, made["kind"], version)
        actors.cluster.kubectl("apply", "-f", "-", stdin=json.dumps(definition))
        name = definition["metadata"]["name"]
        actors.cluster.kubectl("wait", "--for=condition=established", f"crd/{name}", "--timeout=20s")


def annotate(actors: Actors, name: str, **values: str) -> CompletedProcess[str]:
    given = [f"{PREFIX}{key}={value}" for key, value in values.items()]
    return actors.kubectl("annotate", "pod", actors.full(name), "--overwrite", *given)


def test_a_member_of_a_missing_pod_group_is_refused(actors: Actors) -> None:
    """kube-apiserver before 1.36 does not know the field `schedulingGroup`. kubectl requests strict
    validation, so kube-apiserver rejects the unknown field."""
    answer = actors.apply(pod("member", schedulingGroup={"podGroupName": "gang"}))
    assert answer.returncode != 0
    known = actors.kubernetes() >= (1, 36)
    told = "there is no PodGroup gang" if known else "unknown field"
    assert told in answer.stderr
    assert "schedulingGroup" in answer.stderr
    assert actors.see("member") is None


def test_all_problems_of_a_pod_are_reported_together(actors: Actors) -> None:
    wrong = pod("p", cpu=None, annotations={"timeout": "soon"}, terminationGracePeriodSeconds=60)
    answer = actors.apply(wrong)
    assert answer.returncode != 0
    for part in (
        f'annotation {PREFIX}timeout: "soon" is not a whole number',
        "(https://github.com/slurm-extender/slurm-extender/blob/main/docs/reference/annotations.md#timeout)",
        "the Pod requests no cpu",
        "terminationGracePeriodSeconds: 60 is not below 25",
    ):
        assert part in answer.stderr
    assert actors.see("p") is None


def test_misspelled_annotation_is_rejected_with_the_intended_name(actors: Actors) -> None:
    answer = actors.apply(pod("p", annotations={"partiton": "main"}))
    assert answer.returncode != 0
    assert f"did you mean {PREFIX}partition?" in answer.stderr
    assert actors.see("p") is None


def test_unknown_annotation_and_required_nodes_cause_warnings(actors: Actors) -> None:
    answer = actors.apply(pod("p", annotations={"lock": "x", "required-nodes": "node-2"}))
    assert answer.returncode == 0
    assert f"Warning: annotation {PREFIX}lock is unknown here" in answer.stderr
    assert f"Warning: annotation {PREFIX}required-nodes: " in answer.stderr
    assert actors.bound("p") == "node-2"


# Grace periods. Slurm's KillWait is 30 s on this cluster.


def grace(actors: Actors, name: str) -> int:
    return int((actors.see(name) or {})["spec"]["terminationGracePeriodSeconds"])


def test_the_default_grace_is_lowered_with_a_warning(actors: Actors) -> None:
    answer = actors.apply(pod("p"))
    assert answer.returncode == 0
    assert "Warning: terminationGracePeriodSeconds: the default of 30 becomes 24" in answer.stderr
    assert grace(actors, "p") == 24
    actors.bound("p")


def test_kill_wait_of_slurm_overrides_the_setting(quiet: Actors, slurm_release: str) -> None:
    """With Slurm 24.11, the setting applies, because slurmrestd 24.11 does not report KillWait."""
    quiet.cluster.start("extender", env={"SLURM_EXTENDER_KILL_WAIT_S": "300"})
    try:
        quiet.create("p")
        assert grace(quiet, "p") == (24 if slurm_release == "26.05" else 30)
        quiet.bound("p")
    finally:
        quiet.cluster.stop("extender")


def test_setting_rejects_the_default_grace(quiet: Actors) -> None:
    quiet.cluster.start("extender", env={"SLURM_EXTENDER_DEFAULT_GRACE": "refuse"})
    try:
        answer = quiet.apply(pod("p"))
        assert answer.returncode != 0
        assert "terminationGracePeriodSeconds: 30 is not below 25" in answer.stderr
    finally:
        quiet.cluster.stop("extender")


# Time limits


def test_active_deadline_of_a_pod_limits_its_job(actors: Actors) -> None:
    actors.create("p", activeDeadlineSeconds=61)
    actors.bound("p")
    assert actors.scontrol("p")["TimeLimit"] == "00:02:00"


# Changed Pods


def test_gated_pod_accepts_corrections_and_rejects_invalid_annotations(actors: Actors) -> None:
    actors.create("p", annotations={"partition": "nowhere"})
    refused = annotate(actors, "p", timeout="soon", priority="high")
    assert refused.returncode != 0
    assert '"soon"' in refused.stderr
    assert '"high"' in refused.stderr
    assert annotate(actors, "p", timeout="60", partition="main").returncode == 0
    actors.bound("p")


def test_gated_pod_rejects_an_oversized_resize(actors: Actors) -> None:
    actors.create("p", annotations={"partition": "nowhere"})
    huge = {"name": "c", "resources": {"requests": {"cpu": "1e30"}}}
    patch = json.dumps({"spec": {"containers": [huge]}})
    refused = actors.kubectl("patch", "pod", actors.full("p"), "--subresource=resize", "-p", patch)
    assert refused.returncode != 0
    if actors.kubernetes() < (1, 33):  # before 1.33, no request of a Pod may change
        plain = actors.kubectl("patch", "pod", actors.full("p"), "-p", patch)
        assert "pod updates may not change fields other than" in plain.stderr
    else:
        assert "c.resources.requests.cpu" in refused.stderr
        assert "is too large a quantity" in refused.stderr


def test_bound_pod_accepts_any_annotation(actors: Actors) -> None:
    actors.create("p")
    actors.bound("p")
    assert annotate(actors, "p", timeout="soon", partiton="main").returncode == 0


# Pod templates


def test_invalid_pod_template_of_a_deployment_causes_warnings(
    actors: Actors, applied: list[Manifest]
) -> None:
    wrong = deployment(timeout="soon", partiton="main")
    applied.append(wrong)
    answer = actors.apply(wrong)
    assert answer.returncode == 0, answer.stderr
    would = "Warning: spec.template: Pods would be refused:"
    assert f'{would} annotation {PREFIX}timeout: "soon" is not a whole number' in answer.stderr
    assert (
        f"{would} annotation {PREFIX}partiton is unknown: did you mean {PREFIX}partition?"
        in answer.stderr
    )
    assert "terminationGrace" not in answer.stderr


def test_template_warning_appears_only_if_the_template_changes(
    actors: Actors, applied: list[Manifest]
) -> None:
    made = deployment(qos="high")
    applied.append(made)
    assert not actors.apply(made).stderr
    name = made["metadata"]["name"]
    assert not actors.kubectl("annotate", "deployment", name, "a=b").stderr
    patch = {"spec": {"template": {"metadata": {"annotations": {f"{PREFIX}timeout": "soon"}}}}}
    changed = actors.kubectl("patch", "deployment", name, "-p", json.dumps(patch))
    assert changed.returncode == 0
    assert '"soon"' in changed.stderr
    assert not actors.kubectl("annotate", "deployment", name, "a=c", "--overwrite").stderr


JOB = {"template": template(timeout="soon")}
JOB["template"]["spec"]["restartPolicy"] = "Never"


@pytest.mark.parametrize(
    ("made", "place"),
    [
        (workload("Job", "batch/v1", {"suspend": True} | JOB), "spec.template"),
        (
            workload(
                "CronJob",
                "batch/v1",
                {"schedule": "0 0 1 1 *", "suspend": True, "jobTemplate": {"spec": JOB}},
            ),
            "spec.jobTemplate.spec.template",
        ),
        (
            workload(
                "StatefulSet",
                "apps/v1",
                {"selector": {"matchLabels": {"app": "p"}}, "template": template(timeout="soon")},
            ),
            "spec.template",
        ),
        (
            workload(
                "JobSet",
                "jobset.x-k8s.io/v1alpha2",
                {"replicatedJobs": [{"name": "w", "template": {"spec": JOB}}]},
            ),
            "spec.replicatedJobs[0].template.spec.template",
        ),
        (
            workload(
                "LeaderWorkerSet",
                "leaderworkerset.x-k8s.io/v1",
                {"leaderWorkerTemplate": {"workerTemplate": template(timeout="soon")}},
            ),
            "spec.leaderWorkerTemplate.workerTemplate",
        ),
    ],
    ids=lambda given: given["kind"] if isinstance(given, dict) else "",
)
def test_every_kind_of_workload_gets_template_warnings(
    made: Manifest, place: str, actors: Actors, applied: list[Manifest]
) -> None:
    define(actors, made)
    made = made | {"metadata": dict(made["metadata"])}
    applied.append(made)
    answer = actors.apply(made)
    assert answer.returncode == 0, answer.stderr
    assert f"Warning: {place}: Pods would be refused: annotation {PREFIX}timeout" in answer.stderr


def test_a_new_job_set_gets_the_size_of_its_gang(actors: Actors, applied: list[Manifest]) -> None:
    of_job = {"parallelism": 3, "completions": 3, "template": template(gang="jobset")}
    job = {"name": "w", "replicas": 2, "template": {"spec": of_job}}
    made = workload("JobSet", "jobset.x-k8s.io/v1alpha2", {"replicatedJobs": [job]})
    define(actors, made)
    applied.append(made)
    answer = actors.apply(made, "-o", "json")
    assert (answer.returncode, answer.stderr) == (0, "")
    (job,) = json.loads(answer.stdout)["spec"]["replicatedJobs"]
    annotations = job["template"]["spec"]["template"]["metadata"]["annotations"]
    assert annotations == {f"{PREFIX}gang": "jobset", f"{PREFIX}gang-size": "6"}


def test_a_deployment_is_created_while_the_extender_is_down(
    quiet: Actors, applied: list[Manifest]
) -> None:
    made = deployment(timeout="soon")
    applied.append(made)
    assert quiet.apply(made).returncode == 0


# Without the validating webhook


def test_invalid_change_without_the_webhook_is_reported_on_the_pod(actors: Actors) -> None:
    actors.create("p", annotations={"partition": "nowhere"})
    saved = actors.cluster.kubectl("get", VALIDATION, "-o", "json").stdout
    actors.cluster.kubectl("delete", VALIDATION)
    try:
        eventually(lambda: annotate(actors, "p", timeout="soon").returncode == 0, "webhook gone")
        eventually(lambda: '"soon"' in actors.condition("p").get("message", ""), "condition")
        assert actors.node_of("p") is None
    finally:
        actors.cluster.kubectl("create", "-f", "-", stdin=_fresh(saved))
        eventually(lambda: annotate(actors, "p", timeout="never").returncode, "webhook back")


def _fresh(saved: str) -> str:
    """Returns a saved object without the metadata from kube-apiserver, for a new creation."""
    manifest: dict[str, Any] = json.loads(saved)
    manifest["metadata"] = {"name": manifest["metadata"]["name"]}
    return json.dumps(manifest)


# Devices


def serve(actors: Actors, amount: str | None) -> None:
    """Plays the kubelet: reports an amount of another resource on a Node, or removes the resource
    (None)."""
    amounts = {kind: {"example.com/other": amount} for kind in ("capacity", "allocatable")}
    patch = json.dumps({"status": amounts})
    actors.cluster.kubectl("patch", "node", "node-1", "--subresource=status", "-p", patch)


def test_a_resource_may_be_one_type_of_a_gres(quiet: Actors) -> None:
    table = {"nvidia.com/gpu": "gpu:h100", "example.com/other": "gpu:a100"}
    quiet.cluster.start("extender", env={"SLURM_EXTENDER_GRES": json.dumps(table)})
    try:
        quiet.create("p", gpus=2)
        quiet.bound("p")
        assert quiet.scontrol("p")["TresPerNode"] == "gres/gpu:h100:2"
        annotations = (quiet.see("p") or {})["metadata"]["annotations"]
        allocation = Allocation.parse(annotations)
        assert allocation is not None
        assert allocation.gres.startswith("gpu:h100:2(IDX:")
        other = pod("other")
        (container,) = other["spec"]["containers"]
        container["resources"]["limits"] = {"example.com/other": "1"}
        assert quiet.apply(other).returncode == 0
        eventually(lambda: quiet.condition("other").get("reason") == "NoEligibleNode", "not served")
        serve(quiet, "1")
        eventually(lambda: quiet.condition("other").get("reason") == "TooLarge", "no such type")
    finally:
        serve(quiet, None)
        quiet.cluster.stop("extender")
