"""Gangs of controllers at admission: the sizes of new Jobs and JobSets, and controllers whose gang would
wait forever."""

import json
from base64 import b64decode
from typing import Any

import pytest

from tests.builders import PREFIX, Manifest, container
from tests.verbs.callers import Listeners
from tests.verbs.test_validate import call

BATCH, JOB_SET = ("batch", "Job"), ("jobset.x-k8s.io", "JobSet")
LWS = ("leaderworkerset.x-k8s.io", "LeaderWorkerSet")
SIZE = f"{PREFIX}gang-size"
IGNORE = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}


def template(**annotations: str) -> Manifest:
    """Returns a Pod template with annotations of the extender."""
    kept = {PREFIX + name.replace("_", "-"): value for name, value in annotations.items()}
    asked = container({"cpu": "1", "memory": "1Gi"})
    spec = {"containers": [asked], "terminationGracePeriodSeconds": 20}
    return {"metadata": {"annotations": kept}, "spec": spec}


def job(template: Manifest, parallelism: int = 4, completions: int | None = 4) -> Manifest:
    spec: Manifest = {"parallelism": parallelism, "template": template}
    if completions is not None:
        spec["completions"] = completions
    return {"metadata": {"name": "train"}, "spec": spec}


def job_set(*templates: tuple[int, int, Manifest], **spec: Any) -> Manifest:
    """Returns a JobSet. Each template comes with the number of Jobs and of Pods in a Job."""
    jobs = [
        {"name": f"job-{n}", "replicas": replicas, "template": {"spec": job(each, pods, pods)["spec"]}}
        for n, (replicas, pods, each) in enumerate(templates)
    ]
    return {"metadata": {"name": "set"}, "spec": {"replicatedJobs": jobs, **spec}}


def lws(size: int = 4, annotations: Manifest | None = None, **spec: Any) -> Manifest:
    of_group = {"size": size, "workerTemplate": template(gang="lws")}
    metadata = {"name": "serve", "annotations": annotations or {}}
    return {"metadata": metadata, "spec": {"leaderWorkerTemplate": of_group, **spec}}


async def review(verb: str, manifest: Manifest, kind: tuple[str, str]) -> Manifest:
    response: Manifest = (await Listeners().ask(verb, call(manifest, kind=kind)))["response"]
    return response


async def sizes(manifest: Manifest, kind: tuple[str, str]) -> list[tuple[str, str]]:
    """Returns the paths and values that /mutate adds to a new object."""
    response = await review("mutate", manifest, kind)
    assert response["allowed"] is True, response
    patch = json.loads(b64decode(response.get("patch", "W10=")))
    assert {each["op"] for each in patch} <= {"add"}
    return [(each["path"], each["value"]) for each in patch]


async def rejection(manifest: Manifest, kind: tuple[str, str]) -> str:
    response = await review("mutate", manifest, kind)
    assert response["allowed"] is False
    return str(response["status"]["message"])


async def warnings(manifest: Manifest, kind: tuple[str, str]) -> list[str]:
    response = await review("validate", manifest, kind)
    assert response["allowed"] is True
    return list(response.get("warnings", ()))


def path(*of_job: str) -> str:
    return "/".join(("", *of_job, "template/metadata/annotations", SIZE.replace("/", "~1")))


@pytest.mark.parametrize("completions", [4, None])
async def test_a_new_job_gets_the_number_of_its_pods(completions: int | None) -> None:
    new = job(template(gang="job"), completions=completions)
    assert await sizes(new, BATCH) == [(path("spec"), "4")]
    assert await warnings(new, BATCH) == []


async def test_jobs_of_a_job_set_get_the_number_of_all_pods() -> None:
    new = job_set((1, 1, template(gang="jobset")), (2, 3, template(gang="jobset")), (5, 5, template()))
    places = [path("spec/replicatedJobs", str(n), "template/spec") for n in (0, 1)]
    assert await sizes(new, JOB_SET) == [(place, "7") for place in places]
    assert await warnings(new, JOB_SET) == []


async def test_each_job_of_a_job_set_may_be_a_gang() -> None:
    new = job_set((2, 3, template(gang="job")), startupPolicy={"startupPolicyOrder": "InOrder"})
    assert await sizes(new, JOB_SET) == []  # kube-apiserver calls again for each Job
    assert await warnings(new, JOB_SET) == []


async def test_a_leader_worker_set_needs_no_size() -> None:
    assert await warnings(lws(), LWS) == []


async def test_a_job_with_more_pods_than_at_a_time_is_rejected() -> None:
    told = await rejection(job(template(gang="job"), completions=10), BATCH)
    assert "spec.completions: the Job has 10 Pods, and runs 4 at a time" in told
    assert "#gangs" in told


async def test_another_size_than_the_number_of_pods_is_rejected() -> None:
    told = await rejection(job(template(gang="job", gang_size="5")), BATCH)
    assert f"annotation {SIZE}: 5 is not the number of Pods, 4" in told
    assert await sizes(job(template(gang="job", gang_size="4")), BATCH) == [(path("spec"), "4")]


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"parallelism": 0, "completions": 0}, "a gang has 1 to 2048 Pods, and this gang 0"),
        ({"parallelism": 4000, "completions": 4000}, "and this gang 4000"),
        ({"manualSelector": True}, "spec.manualSelector: the Pods have no labels of the Job"),
    ],
)
async def test_a_job_that_cannot_be_a_gang_is_rejected(spec: dict[str, Any], words: str) -> None:
    new = job(template(gang="job"))
    new["spec"] |= spec
    assert words in await rejection(new, BATCH)


async def test_a_job_outside_of_the_gang_may_depend_on_the_gang() -> None:
    new = job_set((1, 2, template(gang="jobset")), (1, 1, template()))
    new["spec"]["replicatedJobs"][1]["dependsOn"] = [{"name": "job-0", "status": "Complete"}]
    assert await sizes(new, JOB_SET) == [(path("spec/replicatedJobs/0/template/spec"), "2")]


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"startupPolicy": {"startupPolicyOrder": "InOrder"}}, "spec.startupPolicy.startupPolicyOrder"),
        ({"annotations": "alpha.jobset.sigs.k8s.io/exclusive-topology"}, "exclusive-topology"),
        ({"dependsOn": [{"name": "job-0", "status": "Ready"}]}, "spec.replicatedJobs[0].dependsOn"),
    ],
)
async def test_a_job_set_that_would_wait_forever_is_rejected(spec: dict[str, Any], field: str) -> None:
    new = job_set((1, 2, template(gang="jobset")))
    if "annotations" in spec:
        new["metadata"]["annotations"] = {spec["annotations"]: "zone"}
    elif "dependsOn" in spec:
        new["spec"]["replicatedJobs"][0] |= spec
    else:
        new["spec"] |= spec
    told = await rejection(new, JOB_SET)
    assert field in told
    assert "creates some Pods only after other Pods run" in told


@pytest.mark.parametrize(
    "wrong",
    [
        lws(startupPolicy="LeaderReady"),
        lws(annotations={"leaderworkerset.sigs.k8s.io/exclusive-topology": "zone"}),
    ],
)
async def test_a_leader_worker_set_that_would_wait_forever_gets_a_warning(wrong: Manifest) -> None:
    (told,) = await warnings(wrong, LWS)
    assert "creates some Pods only after other Pods run" in told


@pytest.mark.parametrize("gang", ["jobset", "job"])
async def test_exclusive_topology_of_a_job_in_a_job_set_is_found(gang: str) -> None:
    new = job_set((1, 2, template(gang=gang)))
    name = "alpha.jobset.sigs.k8s.io/exclusive-topology"
    new["spec"]["replicatedJobs"][0]["template"]["metadata"] = {"annotations": {name: "zone"}}
    told = await rejection(new, JOB_SET) if gang == "jobset" else "".join(await warnings(new, JOB_SET))
    assert f"spec.replicatedJobs[0].template annotation {name}" in told


@pytest.mark.parametrize("policy", ["OrderedReady", "Parallel", None])
async def test_a_stateful_set_must_create_all_pods_at_once(policy: str | None) -> None:
    new: Manifest = {"spec": {"template": template(gang="a", gang_size="2")}}
    if policy is not None:
        new["spec"]["podManagementPolicy"] = policy
    told = await warnings(new, ("apps", "StatefulSet"))
    assert len(told) == (policy != "Parallel")
    assert all("spec.podManagementPolicy" in each for each in told)


async def test_the_jobs_of_a_cron_job_may_be_gangs() -> None:
    cron = {"spec": {"jobTemplate": {"spec": job(template(gang="job"))["spec"]}}}
    assert await warnings(cron, ("batch", "CronJob")) == []


async def test_a_deployment_is_no_gang_of_a_job() -> None:
    (told,) = await warnings({"spec": {"template": template(gang="job")}}, ("apps", "Deployment"))
    assert "gang: job is for Pods of a Job: the Pod has no label batch.kubernetes.io/job-name" in told


@pytest.mark.parametrize("spec", [None, {}, {"replicatedJobs": 5}, {"replicatedJobs": [None, {}]}])
@pytest.mark.parametrize("kind", [BATCH, JOB_SET, LWS])
async def test_malformed_objects_are_left_to_kube_apiserver(spec: Any, kind: tuple[str, str]) -> None:
    assert await sizes({"spec": spec}, kind) == []
    assert await warnings({"spec": spec}, kind) == []


@pytest.mark.parametrize(
    ("size", "spec", "words"),
    [
        (7, {}, "spec.backoffLimit: an eviction of the gang counts as 7 failures, and the limit is 6"),
        (6, {}, None),
        (2, {"backoffLimit": 1}, "counts as 2 failures, and the limit is 1"),
        (7, {"backoffLimitPerIndex": 1}, None),
        (7, {"backoffLimitPerIndex": 0}, "spec.backoffLimitPerIndex: an eviction"),
        (7, {"podFailurePolicy": {"rules": [IGNORE]}}, None),
        (7, {"podFailurePolicy": {"rules": [{**IGNORE, "action": "Count"}]}}, "the Job would fail"),
    ],
)
async def test_author_is_warned_of_a_job_that_an_eviction_ends(
    size: int, spec: dict[str, Any], words: str | None
) -> None:
    manifest = job(template(gang="job", gang_size=str(size)), size, size)
    manifest["spec"] |= spec
    told = await warnings(manifest, BATCH)
    assert bool(told) is (words is not None), told
    assert words is None or words in told[0]


# Gangs by default


EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"


async def ask(verb: str, sent: Manifest) -> Manifest:
    """Asks a webhook of an extender for which Jobs are gangs by default."""
    response: Manifest = (await Listeners(gangs_by_default=True).ask(verb, sent))["response"]
    return response


async def by_default(manifest: Manifest, verb: str = "mutate") -> list[Manifest]:
    """Returns the JSON Patch of a new Job."""
    response = await ask(verb, call(manifest, kind=BATCH))
    assert response["allowed"] is True
    patch: list[Manifest] = json.loads(b64decode(response.get("patch", "W10=")))
    return patch


async def test_a_job_with_several_pods_is_a_gang_by_default() -> None:
    (added,) = await by_default(job(template(partition="main")))
    assert added["path"] == "/spec/template/metadata"
    kept = {f"{PREFIX}partition": "main"}
    assert added["value"] == {"annotations": kept | {f"{PREFIX}gang": "job", SIZE: "4"}}


async def test_job_without_annotations_is_a_gang_where_every_pod_goes_to_slurm() -> None:
    plain = job({"spec": template()["spec"]})
    assert await by_default(plain) == []
    (added,) = await by_default(plain, verb="mutate/every-pod")
    assert added["value"] == {"annotations": {f"{PREFIX}gang": "job", SIZE: "4"}}


def kept_apart(manifest: Manifest) -> Manifest:
    """Returns a Job whose Pods run on different Nodes."""
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "a"}}}
    rules = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    manifest["spec"]["template"]["spec"]["affinity"] = {"podAntiAffinity": rules}
    return manifest


@pytest.mark.parametrize(
    "manifest",
    [
        job(template(partition="main"), 1, 1),
        job(template(partition="main"), 4, 8),
        job(template(partition="main", gang="none")),
        job(template(), 4, 4),
        job(template(partition="main", required_nodes="n1")),
        kept_apart(job(template(partition="main"))),
        job(template(partition="main")) | {"metadata": {"annotations": {EXCLUSIVE: "rack"}}},
    ],
)
async def test_job_that_cannot_be_a_gang_stays_as_it_is(manifest: Manifest) -> None:
    assert await by_default(manifest) == []
