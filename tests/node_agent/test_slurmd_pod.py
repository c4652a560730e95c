"""Tests of the Node's slurmd Pod: the manifest, and the times when the agent creates and ends the
Pod."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from kubernetes_client.errors import Rejected
from kubernetes_client.in_memory import InMemoryKubernetes
from node_agent.pods.node_pods import NodePods
from node_agent.slurmd import images
from node_agent.slurmd.manifest import Found, manifest, reserved
from node_agent.slurmd.runner import Here, SlurmdRunner
from node_agent.slurmd.step import Step, starts, step
from tests.eventually import until
from wellknown.conditions import timestamp
from wellknown.names import SLURMD
from wellknown.slurmd_pod import Assignment, pod_name, pull_pod_name

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


NODE = {
    "metadata": {"name": "n1", "uid": "u-n1", "labels": {"example.io/rack": "r7"}},
    "status": {
        "capacity": {"cpu": "8", "memory": "16Gi"},
        "allocatable": {"cpu": "7500m", "memory": "15Gi"},
    },
}
ASSIGNED = Assignment("gpu", "gpu-1")
DATA: dict[str, Any] = {
    "controllers": ["a:6817", "b:6817"],
    "slurm": {},
    "scripts": [],
    "template": {"spec": {"containers": [{"name": "slurmd", "image": "i"}]}},
}


def made(found: Found | None = None, **data: Any) -> dict[str, Any]:
    return dict(manifest(ASSIGNED, DATA | data, found or Found(NODE, "n1"), "slurm-nodes"))


def slurmd(pod: dict[str, Any]) -> dict[str, Any]:
    return next(each for each in pod["spec"]["containers"] if each["name"] == "slurmd")


def conf(pod: dict[str, Any]) -> str:
    arguments = slurmd(pod)["args"]
    return str(arguments[arguments.index("--conf") + 1])


def test_slurmd_pod_belongs_to_its_node() -> None:
    pod = made()
    assert (pod["metadata"]["namespace"], pod["metadata"]["name"]) == ("slurm-nodes", "slurmd-n1")
    assert pod["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u-n1", "controller": True}
    ]
    assert pod["metadata"]["labels"]["slurm-extender.io/revision"] == "gpu-1"
    assert pod["spec"]["nodeName"] == "n1"
    assert pod["spec"]["automountServiceAccountToken"] is False
    assert slurmd(pod)["args"][:8] == [
        *("-D", "-Z", "-N", "n1", "--conf-server", "a:6817,b:6817"),
        *("--instance-type", "slurm-extender/gpu"),
    ]


def test_node_configuration_comes_from_pool_node_and_devices() -> None:
    assert conf(made()) == "CoreSpecCount=1 MemSpecLimit=1024"
    topology = {"topologyLabel": "example.io/rack", "topologyPrefix": "default:"}
    told = {"features": ["gpu", "x"], "weight": 5, **topology, "conf": "State=CLOUD"}
    assert conf(made(Found(NODE, "n1", "gpu:h100:8"), slurm=told)) == (
        "Feature=gpu,x Weight=5 Gres=gpu:h100:8 Topology=default:r7 CoreSpecCount=1 MemSpecLimit=1024"
        " State=CLOUD"
    )
    assert "Gres=gpu:2 " in conf(made(Found(NODE, "n1", "gpu:h100:8"), slurm={"gres": "gpu:2"}))


def test_reserved_resources_include_daemon_sets_and_threads() -> None:
    daemon = {"containers": [{"resources": {"requests": {"cpu": "600m", "memory": "100Mi"}}}]}
    assert reserved(Found(NODE, "n1", daemons=(daemon, daemon))) == (2, 1224)
    assert reserved(Found(NODE, "n1", threads_per_core=2, daemons=(daemon, daemon))) == (1, 1224)
    assert reserved(Found({"metadata": NODE["metadata"]}, "n1")) == (0, 0)


def test_template_overrides_defaults_except_pool_and_token() -> None:
    container = {
        "name": "slurmd",
        "image": "i",
        "command": ["/init"],
        "args": ["slurmd"],
        "volumeMounts": [{"name": "home", "mountPath": "/home"}],
        "securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}},
    }
    template = {
        "metadata": {"labels": {"team": "a", "slurm-extender.io/pool": "x"}, "annotations": {"b": "c"}},
        "spec": {
            "hostNetwork": True,
            "terminationGracePeriodSeconds": 60,
            "automountServiceAccountToken": True,
            "volumes": [{"name": "home", "emptyDir": {}}],
            "initContainers": [{"name": "i"}],
            "containers": [{"name": "side", "image": "s"}, container],
        },
    }
    pod = made(template=template)
    spec, own = pod["spec"], slurmd(pod)
    assert pod["metadata"]["labels"]["team"] == "a"
    assert pod["metadata"]["labels"]["slurm-extender.io/pool"] == "gpu"
    assert (spec["dnsPolicy"], spec["terminationGracePeriodSeconds"]) == ("ClusterFirstWithHostNet", 60)
    assert spec["automountServiceAccountToken"] is False
    assert spec["containers"][0] == {"name": "side", "image": "s"}
    assert own["command"] == ["/init"]
    assert own["args"][:2] == ["slurmd", "-D"]
    assert own["securityContext"] == {"capabilities": {"add": ["SYS_ADMIN"]}}
    assert [each["name"] for each in own["volumeMounts"]][:2] == ["home", "slurm-extender"]
    assert container["args"] == ["slurmd"]  # not changed


def test_slurmd_gets_a_variable_if_slurm_waits_for_a_boot() -> None:
    boots = manifest(Assignment("gpu", "gpu-1", boots=True), DATA, Found(NODE, "n1"), "slurm-nodes")
    assert slurmd(dict(boots))["env"] == [{"name": "SLURM_EXTENDER_BOOTS", "value": "yes"}]
    assert slurmd(made())["env"] == []


def test_scripts_are_mounted_and_can_be_run() -> None:
    pod = made(scripts=["a", "b"])
    volume = pod["spec"]["volumes"][-1]
    assert volume["projected"] == {
        "sources": [{"configMap": {"name": "a"}}, {"configMap": {"name": "b"}}],
        "defaultMode": 0o755,
    }
    assert slurmd(pod)["volumeMounts"][-1]["mountPath"] == "/slurm-extender/scripts"


# -- The next step


POD = {"metadata": {"uid": "u", "labels": {"slurm-extender.io/revision": "gpu-1"}}}
OLD = {"metadata": {"uid": "u", "labels": {"slurm-extender.io/revision": "gpu-0"}}}


@pytest.mark.parametrize(
    ("assigned", "pod", "jobs", "next_one"),
    [
        (None, None, (), Step.NOTHING),
        (ASSIGNED, None, (), Step.MAKE),
        (ASSIGNED, POD, ("job_1",), Step.NOTHING),
        (ASSIGNED, OLD, (), Step.END),
        (ASSIGNED, OLD, ("job_1",), Step.WAIT),
        (None, POD, (), Step.END),
        (Assignment("gpu"), POD, (), Step.END),
        (Assignment("gpu"), None, (), Step.NOTHING),
        (None, POD, ("job_1",), Step.WAIT),
        (ASSIGNED, POD | {"status": {"phase": "Failed"}}, (), Step.TAKE_AWAY),
        (None, {"metadata": {"deletionTimestamp": "x"}}, (), Step.NOTHING),
    ],
)
def test_next_step_follows_assignment_pod_and_jobs(
    assigned: Assignment | None, pod: dict[str, Any] | None, jobs: tuple[str, ...], next_one: Step
) -> None:
    assert step(assigned, pod, jobs) is next_one


def _runs_since(began: datetime | None, name: str = "slurmd") -> dict[str, Any]:
    state = {"running": {"startedAt": timestamp(began)}} if began else {"waiting": {}}
    other = {"name": "sidecar", "state": {"running": {"startedAt": timestamp(LONG_AGO)}}}
    return POD | {"status": {"containerStatuses": [other, {"name": name, "state": state}]}}


NOW = datetime(2026, 11, 26, 20, tzinfo=UTC)
LONG_AGO = NOW - timedelta(hours=1)
BOOTED_LONG_AGO = 86_400.0


@pytest.mark.parametrize(
    ("pod", "up_s", "expected"),
    [
        (None, BOOTED_LONG_AGO, True),
        (POD, BOOTED_LONG_AGO, True),
        (_runs_since(None), BOOTED_LONG_AGO, True),
        (_runs_since(NOW - timedelta(minutes=4)), BOOTED_LONG_AGO, True),
        (_runs_since(NOW - timedelta(minutes=6)), BOOTED_LONG_AGO, False),
        (_runs_since(LONG_AGO), 30.0, True),  # the kubelet has not reported the end of the container yet
    ],
)
def test_slurmd_counts_as_starting_for_some_minutes(
    pod: dict[str, Any] | None, up_s: float, *, expected: bool
) -> None:
    assert starts(pod, NOW, up_s) is expected


# -- The runner, with a kube-apiserver in memory


class Bench:
    """A Node with the runner of the Node's agent."""

    def __init__(self) -> None:
        self.kubernetes = InMemoryKubernetes()
        self.kubernetes.put("nodes", NODE)
        self.jobs: set[str] = set()
        self.awaited = ""
        self.orphans: list[str] | None = []
        self.problems: dict[str, object] = {}
        says = self.problems.__setitem__
        self.pods = NodePods(self.kubernetes, "n1", self._hears, print, "slurm-nodes")
        here = Here(
            pod=lambda: self.pods.slurmd,
            pull=lambda: self.pods.pull,
            jobs=lambda _: self.jobs,
            orphans=lambda: self.orphans,
            machine=lambda: ("gpu:2", 1),
            awaited=lambda: self.awaited,
        )
        self.now = 1000.0
        names = "n1", "slurm-nodes", "example.io/name"
        self.runner = SlurmdRunner(self.kubernetes, *names, here, says, clock=lambda: self.now)

    def _hears(self) -> None:
        self.runner.wake()

    async def assign(self, revision: str, **data: Any) -> None:
        made = {"metadata": {"name": revision, "namespace": "slurm-nodes"}, "data": DATA | data}
        await self.kubernetes.create_revision("slurm-nodes", made)
        await self.annotate(**Assignment("gpu", revision).annotations())

    async def annotate(self, **annotations: str | None) -> None:
        await self.kubernetes.patch_node("n1", {"metadata": {"annotations": annotations}})

    async def runs(self, revision: str = "gpu-1") -> str:
        """Assigns a revision, and waits for the Pod. Returns the Pod's uid."""
        await self.assign(revision)
        await until(lambda: self.pods.slurmd is not None)
        return self.uid

    def edit(self, **status: str) -> None:
        self.kubernetes.edit("pods", pod_name("n1"), {"status": status}, "slurm-nodes")

    def remove(self) -> None:
        self.kubernetes.remove("pods", pod_name("n1"), "slurm-nodes")

    def edit_pull(self, *, phase: str = "Pending", **container: Any) -> None:
        """Reports the state of the Pod that pulls images, as the kubelet does."""
        told = {"phase": phase, "containerStatuses": [{"name": "image-0", "image": "j"} | container]}
        self.kubernetes.edit("pods", pull_pod_name("n1"), {"status": told}, "slurm-nodes")

    @property
    def pull(self) -> tuple[str, list[str]] | None:
        """Returns the revision and the images of the Pod that pulls images."""
        with suppress(Exception):
            pod = self.kubernetes.read("pods", pull_pod_name("n1"), "slurm-nodes")
            images = [each["image"] for each in pod["spec"]["containers"]]
            return pod["metadata"]["labels"]["slurm-extender.io/revision"], images
        return None

    @property
    def pod(self) -> dict[str, Any]:
        """Returns the slurmd Pod; {} without a Pod."""
        with suppress(Exception):
            return self.kubernetes.read("pods", pod_name("n1"), "slurm-nodes")
        return {}

    @property
    def uid(self) -> str:
        return str(self.pod["metadata"]["uid"]) if self.pod else ""

    @property
    def ends(self) -> bool:
        return bool(self.pod) and "deletionTimestamp" in self.pod["metadata"]

    @property
    def revision(self) -> str | None:
        return self.pod["metadata"]["labels"]["slurm-extender.io/revision"] if self.pod else None

    @property
    def condition(self) -> tuple[str, str]:
        """Returns the status and the message of the condition; both are "" without a condition."""
        conditions = self.kubernetes.read("nodes", "n1")["status"].get("conditions") or ()
        told = {each["type"]: each for each in conditions}.get("slurm-extender.io/SlurmdProblem")
        return (told["status"], told["message"]) if told else ("", "")

    @property
    def problem(self) -> str | None:
        status, message = self.condition
        return message if status == "True" else None


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    parts = [asyncio.ensure_future(each) for each in (made.pods.follow(), made.runner.run())]
    yield made
    for part in parts:
        part.cancel()
    await asyncio.gather(*parts, return_exceptions=True)


async def test_only_an_assigned_node_runs_a_pod(bench: Bench) -> None:
    await bench.assign("gpu-1")
    await until(lambda: bench.revision == "gpu-1")
    assert "Gres=gpu:2 " in conf(bench.pod)
    await bench.annotate(**{SLURMD: None})
    await until(lambda: not bench.pod or bench.ends)


async def test_another_revision_replaces_the_pod_after_its_jobs(bench: Bench) -> None:
    await bench.runs("gpu-1")
    bench.jobs = {"job_7"}
    await bench.assign("gpu-2")
    await until(lambda: bench.problem)
    assert bench.problem == "the slurmd Pod is not ended, since Slurm's jobs run in it: job_7"
    assert bench.revision == "gpu-1"
    bench.jobs = set()
    bench.runner.wake()
    await until(lambda: bench.ends)
    assert bench.pod["metadata"]["deletionGracePeriodSeconds"] == 7 * 86_400  # jobs may start now
    bench.remove()
    await until(lambda: bench.revision == "gpu-2")
    await until(lambda: bench.problem is None)


def template(*images: str) -> dict[str, Any]:
    containers = [{"name": "slurmd" if not n else f"c{n}", "image": i} for n, i in enumerate(images)]
    return {"spec": {"imagePullSecrets": [{"name": "s"}], "containers": containers}}


async def test_images_are_pulled_before_slurmd_ends(bench: Bench) -> None:
    await bench.runs("gpu-1")
    await bench.assign("gpu-2", template=template("j", "i"))
    await until(lambda: bench.pull == ("gpu-2", ["j"]))  # image i is on the Node already
    await until(lambda: bench.condition == ("False", "images of gpu-2: being pulled"))
    bench.edit_pull(state={"waiting": {"reason": "ErrImagePull", "message": "not found"}})
    failed = "images of gpu-2: not pulled: j: ErrImagePull: not found"
    await until(lambda: bench.condition == ("False", failed))
    bench.now += 60
    bench.runner.wake()
    await until(lambda: bench.problem == failed)
    assert not bench.ends
    bench.edit_pull(phase="Failed", imageID="sha256:1", state={"terminated": {"reason": "StartError"}})
    await until(lambda: bench.ends)
    bench.remove()
    await until(lambda: bench.revision == "gpu-2")
    await until(lambda: bench.pull is None)
    await until(lambda: bench.problem is None)


async def test_pull_gives_way_to_another_revision(bench: Bench) -> None:
    await bench.runs("gpu-1")
    await bench.assign("gpu-2", template=template("j"))
    await until(lambda: bench.pull == ("gpu-2", ["j"]))
    await bench.assign("gpu-3", template=template("k"))
    await until(lambda: bench.pull == ("gpu-3", ["k"]))
    await bench.annotate(**ASSIGNED.annotations())
    await until(lambda: bench.pull is None)
    assert bench.revision == "gpu-1"
    assert not bench.ends


async def test_pull_that_cannot_begin_leaves_slurmd_alone(bench: Bench) -> None:
    await bench.runs("gpu-1")
    bench.kubernetes.outage(Rejected(422, "spec.containers[0].image: Required value"), "create_pod")
    await bench.assign("gpu-2", template=template("j"))
    await until(lambda: bench.condition[1].startswith("images of gpu-2: not pulled: "))
    assert bench.problem is None
    bench.now += 60
    bench.runner.wake()
    await until(lambda: (bench.problem or "").startswith("images of gpu-2: not pulled: "))
    await bench.annotate(**Assignment("gpu", "gpu-9").annotations())
    await until(lambda: bench.problem == "there is no ControllerRevision gpu-9 in slurm-nodes")
    assert not bench.ends


@pytest.mark.parametrize(
    ("status", "pulled", "problem"),
    [
        ({}, False, ""),
        ({"containerStatuses": [{"state": {"waiting": {"reason": "ContainerCreating"}}}]}, False, ""),
        ({"containerStatuses": [{"imageID": "", "state": {"waiting": {}}}]}, False, ""),
        ({"containerStatuses": [{"imageID": "sha256:1"}]}, True, ""),
        # Without /bin/true in the image, CRI-O creates no container
        ({"containerStatuses": [{"state": {"waiting": {"reason": "CreateContainerError"}}}]}, True, ""),
        (
            {
                "containerStatuses": [
                    {"image": "j", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "m"}}}
                ]
            },
            False,
            "j: ImagePullBackOff: m",
        ),
        (
            {"phase": "Failed", "reason": "OutOfpods", "message": "too many"},
            False,
            "the Pod has ended: OutOfpods too many",
        ),
    ],
)
def test_pull_result_is_read_from_the_pod_status(
    status: dict[str, Any], pulled: bool, problem: str
) -> None:
    pod = {"spec": {"containers": [{"image": "j"}]}, "status": status}
    assert images.pulled(pod) is pulled
    assert pulled or images.problem(pod) == problem


def test_pull_pod_has_only_pull_settings_of_the_template() -> None:
    container = {"name": "slurmd", "image": "j", "imagePullPolicy": "Always", "env": [{"name": "X"}]}
    more = {"hostNetwork": True, "imagePullSecrets": [{"name": "s"}], "volumes": [{"name": "v"}]}
    wanted = {
        "spec": more | {"initContainers": [{"image": "k"}, {"image": "i"}], "containers": [container]}
    }
    lacking = images.missing(wanted, made())
    node = {"name": "n1", "uid": "u-n1"}
    pod = images.pull_pod(ASSIGNED, lacking, wanted["spec"], node, "slurm-nodes")
    assert "slurm-extender.io/pool" not in pod["metadata"]["labels"]  # label of the PodDisruptionBudget
    spec = pod["spec"]
    assert (spec["hostNetwork"], spec["imagePullSecrets"]) == (True, [{"name": "s"}])
    assert "volumes" not in spec
    assert spec["automountServiceAccountToken"] is False
    assert spec["containers"] == [
        {"name": "image-0", "command": ["/bin/true"], "image": "k"},
        {"name": "image-1", "command": ["/bin/true"], "image": "j", "imagePullPolicy": "Always"},
    ]


async def test_removed_pod_is_made_again(bench: Bench) -> None:
    uid = await bench.runs()
    bench.remove()
    await until(lambda: bench.uid not in ("", uid))


async def test_no_pod_is_made_beside_processes_of_an_earlier_pod(bench: Bench) -> None:
    bench.orphans = None  # the Node's Pods are not listed yet
    await bench.assign("gpu-1")
    await asyncio.sleep(0.1)
    assert (bench.pod, bench.condition) == ({}, ("", ""))
    bench.orphans = ["u-0"]
    bench.runner.wake()
    await until(lambda: bench.problem)
    assert "still run on this Node (uid u-0)" in bench.condition[1]
    assert not bench.pod
    bench.orphans = []
    bench.runner.wake()
    await until(lambda: bench.pod)
    await until(lambda: bench.problem is None)


async def test_ended_pod_is_made_again_after_a_pause(bench: Bench) -> None:
    """The kubelet may reject the Pod each time, because the Node shuts down or has no room."""
    uids = {"", await bench.runs()}
    bench.edit(phase="Failed", reason="Evicted")
    await until(lambda: bench.uid not in uids)
    uids.add(bench.uid)
    bench.edit(phase="Failed", reason="OutOfcpu")
    await asyncio.sleep(0.2)
    assert bench.uid in uids
    bench.now += 60
    bench.runner.wake()
    await until(lambda: bench.uid not in uids)


async def test_assignment_of_a_later_release_changes_nothing(bench: Bench) -> None:
    await bench.runs()
    await bench.annotate(**{SLURMD: '{"v":2}'})
    await until(lambda: bench.problem)
    assert bench.problem == 'the annotation slurm-extender.io/slurmd is not understood: {"v":2}'
    assert bench.pod
    assert not bench.ends


async def test_failed_creation_of_the_pod_is_reported_on_the_node(bench: Bench) -> None:
    await bench.annotate(**Assignment("gpu", "gpu-9").annotations())
    await until(lambda: bench.problem == "there is no ControllerRevision gpu-9 in slurm-nodes")
    bench.kubernetes.outage(Rejected(422, "spec.volumes[0]: Required value"), "create_pod")
    await bench.assign("gpu-1")
    await until(lambda: "spec.volumes[0]: Required value" in (bench.problem or ""))
    bench.kubernetes.outage(None)
    bench.runner.wake()
    await until(lambda: bench.revision == "gpu-1")
    await until(lambda: bench.problem is None)


async def test_slurmd_pod_waits_for_drivers_if_the_agent_finds_devices(bench: Bench) -> None:
    """Slurm takes a node's devices only when Slurm creates the node."""
    bench.awaited = "no driver reports the GPU at 0000:19:00.0"
    words = f"no slurmd Pod is made yet: {bench.awaited}; with slurm.gres in the pool it would be"
    await bench.assign("gpu-1")
    await until(lambda: bench.condition == ("False", words))
    bench.now += 600
    bench.runner.wake()
    await until(lambda: bench.condition == ("True", words))
    assert not bench.pod
    bench.awaited = ""
    bench.runner.wake()
    await until(lambda: bench.revision == "gpu-1")
    await until(lambda: bench.condition[0] == "False")
    assert bench.condition[1] == "the Node's slurmd Pod is as it was assigned"


async def test_slurmd_pod_waits_for_no_driver_if_the_pool_sets_gres(bench: Bench) -> None:
    bench.awaited = "a driver"
    await bench.assign("gpu-1", slurm={"gres": ""})  # the pool declares no devices
    await until(lambda: bench.revision == "gpu-1")


async def test_pod_of_that_name_in_another_namespace_is_no_slurmd_pod(bench: Bench) -> None:
    """A user with permission to create Pods in another namespace must not get all devices by giving a
    Pod this name."""
    metadata = {"name": pod_name("n1"), "namespace": "default"}
    spec = {"nodeName": "n1", "containers": []}
    bench.kubernetes.put("pods", {"metadata": metadata, "spec": spec})
    await until(lambda: bench.pods.claims)
    assert not any(claim.slurmd for claim in (bench.pods.claims or {}).values())
    assert bench.pods.slurmd is None
