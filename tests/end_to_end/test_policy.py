"""Tests of the policy: the policy decides the user of a Pod, and limits the requests of the Pod."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import yaml

from deploy.local.errors import ClusterError
from tests.end_to_end.actors import PREFIX, Actors, fetch, pod
from tests.end_to_end.test_disagreements import without_webhook
from tests.eventually import eventually

pytestmark = pytest.mark.real

GUARD = "validatingadmissionpolicybinding/slurm-extender-bookkeeping"

ALICE = """\
rules:
- name: robots
  namespaces: [default]
  serviceAccounts: ["robot-*"]
  default: {user: 2002}
- name: ours
  namespaces: [default]
  default: {user: 2001}
  allow:
    partitions: [main]
    maxPriority: 1000
"""
BOB = ALICE.replace("2001", "2002")
NOBODY = "rules:\n- name: others\n  namespaces: [elsewhere]\n  default: {user: 2001}\n"


class Policy:
    """Changes the policy of the cluster during a test."""

    def __init__(self, actors: Actors) -> None:
        self._actors = actors
        self._file = actors.cluster.policy_file
        self._first = self._file.read_text()

    def write(self, text: str) -> None:
        """Writes a policy, and waits until the extender has read the policy."""
        before = self._read()
        self._file.write_text(text)
        eventually(lambda: self._read() > before, "the policy read")

    def spoil(self) -> None:
        self._file.write_text("preset: closed\n")

    def restore(self) -> None:
        if self._file.read_text() != self._first:
            self.write(self._first)

    def _read(self) -> int:
        """Returns the number of policies that the extender's log mentions."""
        log = (self._actors.cluster.logs / "extender.log").read_text()
        return log.count('"event":"policy",')


@pytest.fixture
def policy(actors: Actors) -> Iterator[Policy]:
    given = Policy(actors)
    given.write(ALICE)
    yield given
    given.restore()


def is_leaving(actors: Actors, name: str) -> bool:
    seen = actors.see(name)
    return seen is None or "deletionTimestamp" in seen["metadata"]


def owner(actors: Actors, name: str) -> str | None:
    """Returns the user of a Pod's job in squeue; None if the Pod has no job."""
    lines = actors.cluster.run_slurm("squeue", "-h", "-o", "%j %u").stdout.splitlines()
    owners = {line.split()[0]: line.split()[1] for line in lines}
    return owners.get(actors.job_name(name))


def annotate(actors: Actors, name: str, *annotations: str) -> None:
    actors.cluster.kubectl("annotate", "pod", actors.full(name), "--overwrite", *annotations)


def refused(actors: Actors, name: str) -> str:
    """Waits until the Pod is refused, and returns the reason."""
    eventually(lambda: actors.condition(name).get("reason") == "Invalid", f"{name} refused")
    eventually(lambda: "Invalid" in actors.events(name), "event")
    assert actors.events(name)["Invalid"] == actors.condition(name)["message"]
    return actors.condition(name)["message"]


def occupy(actors: Actors) -> str:
    """Places a Pod whose job has all of node-1 in Slurm, while Kubernetes still has room on node-1.
    Returns the name of the Pod."""
    actors.create("first", annotations={"required-nodes": "node-1", "exclusive": "none"})
    actors.bound("first")
    return "first"


def create_waiting(actors: Actors, name: str) -> None:
    actors.create(name, annotations={"required-nodes": "node-1"})
    actors.queued(name)


# Users


@pytest.mark.usefixtures("policy")
def test_a_pod_runs_as_the_user_of_its_namespace_or_service_account(actors: Actors) -> None:
    actors.create("p")
    actors.create("robot", serviceAccountName="robot-1")
    actors.bound("p")
    actors.bound("robot")
    assert (owner(actors, "p"), owner(actors, "robot")) == ("alice", "bob")
    assert actors.scontrol("p")["GroupId"] == "alice(2001)"


def test_policy_sets_and_limits_the_time_limit(actors: Actors, policy: Policy) -> None:
    limits = ALICE.replace("{user: 2001}", "{user: 2001, timeout: 3600}")
    policy.write(limits.replace("maxPriority: 1000", "maxTimeout: 7200"))
    actors.create("p")
    actors.bound("p")
    assert actors.scontrol("p")["TimeLimit"] == "01:00:00"
    actors.create("q", annotations={"timeout": "7200"})
    actors.bound("q")
    assert actors.scontrol("q")["TimeLimit"] == "02:00:00"
    told = actors.apply(pod("r", annotations={"timeout": "7201"})).stderr
    assert "a time limit of 121 minutes" in told
    assert 'not allowed by the policy\'s rule "ours", which allows up to 120 minutes' in told


def test_policy_can_give_the_user_of_the_token(actors: Actors, policy: Policy) -> None:
    policy.write(ALICE.replace("2001", "token"))
    actors.create("p")
    actors.bound("p")
    assert owner(actors, "p") == "root"
    assert (
        'user-id: "2001" is not allowed'
        in actors.apply(pod("q", annotations={"user-id": "2001"})).stderr
    )


@pytest.mark.usefixtures("policy")
def test_policy_rejects_another_user_or_group(actors: Actors) -> None:
    answer = actors.apply(pod("p", annotations={"user-id": "2002"}))
    assert answer.returncode != 0
    told = 'annotation sunk.coreweave.com/user-id: "2002" is not allowed by the policy\'s rule "ours"'
    assert f"{told}, which allows 2001" in answer.stderr
    answer = actors.apply(pod("q", annotations={"user-id": "0", "group-id": "2002"}))
    assert 'user-id: "0" is not allowed' in answer.stderr
    assert 'group-id: "2002" is not allowed' in answer.stderr
    assert actors.pods() == {}


def test_pod_without_a_policy_rule_is_rejected(actors: Actors, policy: Policy) -> None:
    policy.write(NOBODY)
    answer = actors.apply(pod("p"))
    assert "no rule of the policy is for Pods of namespace default" in answer.stderr
    assert actors.pods() == {}


@pytest.mark.usefixtures("policy")
def test_policy_applies_to_pods_created_without_the_webhook(actors: Actors) -> None:
    with without_webhook(actors):  # kube-apiserver still calls the deleted webhook for a moment
        foreign = {"user-id": "2002"}
        eventually(lambda: actors.apply(pod("p", annotations=foreign)).returncode == 0, "created")
    assert 'rule "ours"' in refused(actors, "p")
    assert actors.job_of("p") is None
    annotate(actors, "p", PREFIX + "user-id-")
    actors.bound("p")
    assert owner(actors, "p") == "alice"


# Limits of requests


@pytest.mark.usefixtures("policy")
def test_policy_limits_the_priority(actors: Actors) -> None:
    answer = actors.apply(pod("p", annotations={"priority": "1001"}))
    assert 'priority: "1001" is not allowed by the policy\'s rule "ours", which allows up to 1000' in (
        answer.stderr
    )
    actors.create("q", annotations={"priority": "1000"})
    actors.bound("q")
    assert actors.scontrol("q")["Priority"] == "1000"


@pytest.fixture
def partition(actors: Actors, request: pytest.FixtureRequest) -> Iterator[str]:
    """Creates a partition for one test. The parameter of the fixture is a setting of the partition, for
    example `RootOnly=YES`."""
    name, limit = "limited", str(request.param)
    actors.cluster.run_slurm("scontrol", "create", f"PartitionName={name}", "Nodes=node-1", limit)
    yield name
    actors.clean_up()
    actors.cluster.run_slurm("scontrol", "delete", f"PartitionName={name}")


@pytest.mark.parametrize("partition", ["RootOnly=YES"], indirect=True)
def test_policy_controls_root_only_partitions(actors: Actors, policy: Policy, partition: str) -> None:
    """In such a partition, Slurm lets jobs of other users than root wait, but would run a job of the
    token's own user (root). So the policy must allow the partition."""
    ours = ALICE.replace("2001", "token")
    policy.write(ours)
    answer = actors.apply(pod("p", annotations={"partition": partition}))
    assert f'partition: "{partition}" is not allowed' in answer.stderr
    policy.write(ours.replace("[main]", f"[main, {partition}]"))
    actors.create("q", annotations={"partition": partition})
    actors.bound("q")
    assert owner(actors, "q") == "root"


@pytest.mark.parametrize("partition", ["AllowGroups=bob"], indirect=True)
def test_slurm_rejects_a_partition_that_the_user_may_not_use(
    actors: Actors, policy: Policy, partition: str
) -> None:
    allowed = ALICE.replace("[main]", f"[main, {partition}]")
    policy.write(allowed)
    actors.create("p", annotations={"partition": partition})
    eventually(lambda: actors.condition("p").get("reason") == "AccountNotAllowed", "condition")
    assert "uid 2001 not in group permitted to use this partition" in actors.condition("p")["message"]
    policy.write(allowed.replace("2001", "2002"))
    actors.bound("p")
    assert owner(actors, "p") == "bob"


# Changes of the policy or of Pods


@pytest.mark.usefixtures("policy")
def test_policy_checks_changed_annotations_of_a_waiting_pod(actors: Actors) -> None:
    occupy(actors)
    create_waiting(actors, "p")
    assert owner(actors, "p") == "alice"
    foreign = PREFIX + "user-id=2002"
    with pytest.raises(ClusterError, match='user-id: "2002" is not allowed'):
        annotate(actors, "p", foreign)

    def takes_it() -> bool:
        try:
            annotate(actors, "p", foreign)
        except ClusterError:  # kube-apiserver may still call the deleted webhook for a moment
            return False
        return True

    with without_webhook(actors):
        eventually(takes_it, "annotated")
    assert 'user-id: "2002" is not allowed' in refused(actors, "p")
    eventually(lambda: actors.job_of("p") is None, "its job cancelled")
    annotate(actors, "p", PREFIX + "user-id-")
    actors.queued("p")
    assert owner(actors, "p") == "alice"


def test_policy_change_applies_only_to_waiting_pods(actors: Actors, policy: Policy) -> None:
    first = occupy(actors)
    create_waiting(actors, "p")
    before = actors.job_of(first)
    policy.write(NOBODY)
    assert "no rule of the policy" in refused(actors, "p")
    eventually(lambda: actors.job_of("p") is None, "its job cancelled")
    assert actors.job_of(first) == before
    policy.write(BOB)
    eventually(lambda: owner(actors, "p") == "bob", "submitted for another")
    assert (actors.job_of(first), owner(actors, first)) == (before, "alice")
    assert actors.node_of(first) == "node-1"


def test_policy_change_during_downtime_applies_after_the_restart(actors: Actors, policy: Policy) -> None:
    first = occupy(actors)
    create_waiting(actors, "p")
    before = actors.job_of(first)
    actors.cluster.stop("extender")
    actors.cluster.policy_file.write_text(BOB)
    actors.cluster.start("extender")
    eventually(lambda: owner(actors, "p") == "bob", "submitted for another")
    assert (actors.job_of(first), owner(actors, first)) == (before, "alice")


def test_invalid_policy_file_keeps_the_last_valid_policy(actors: Actors, policy: Policy) -> None:
    policy.spoil()
    problem = eventually(lambda: actors.problem("policy"), "/readyz and the log tell")
    assert "policy.yaml:1: preset: must be restricted or open" in problem
    assert actors.ready()[0] == 200
    metrics = f"http://127.0.0.1:{actors.cluster.ports['extender-metrics']}/metrics"
    assert "slurm_extender_policy_good 0.0" in fetch(metrics).text
    assert "the last valid content stays in force" in problem
    actors.create("p")
    actors.bound("p")
    assert owner(actors, "p") == "alice"
    policy.write(BOB)
    eventually(lambda: "policy" not in actors.ready()[1]["problems"], "problem ended")
    assert "slurm_extender_policy_good 1.0" in fetch(metrics).text


def test_invalid_policy_file_at_the_start_ends_the_extender(quiet: Actors, tmp_path: Path) -> None:
    bad = tmp_path / "policy.yaml"
    bad.write_text("preset: closed\nrules: [x]\n")
    quiet.cluster.start("extender", env={"SLURM_EXTENDER_POLICY_FILE": str(bad)}, wait=False)
    assert quiet.cluster.wait_exit("extender") == 2
    log = (quiet.cluster.logs / "extender.log").read_text()
    assert f"SLURM_EXTENDER_POLICY_FILE: {bad}:1: preset: must be restricted or open\n" in log
    assert f"SLURM_EXTENDER_POLICY_FILE: {bad}:2: rules[0]: must be a mapping; fields" in log


# GPUs beside native jobs


@pytest.fixture
def isolating(quiet: Actors) -> Iterator[Actors]:
    """Actors of a cluster with the product's default of SHARED_GPUS (`isolate`). The policy reserves the
    user alice for Pods."""
    file = quiet.cluster.policy_file
    before = file.read_text()
    file.write_text("preset: open\npodUsers: [2001]\n")
    quiet.cluster.start("extender", env={"SLURM_EXTENDER_SHARED_GPUS": "isolate"})
    yield quiet
    quiet.cluster.stop("extender")
    file.write_text(before)


def test_no_native_job_uses_the_gpus_of_a_pod(isolating: Actors) -> None:
    no_native_job_is_beside_a_pod_that_has_gpus(isolating)
    pod_whose_gpus_a_native_job_may_use_is_refused(isolating)


def no_native_job_is_beside_a_pod_that_has_gpus(isolating: Actors) -> None:
    annotations = {"user-id": "2001", "required-nodes": "node-2"}
    answer = isolating.apply(pod("p", gpus=1, annotations=annotations))
    assert "Warning: exclusive is user for this Pod" in answer.stderr
    isolating.bound("p")
    shown = isolating.scontrol("p")
    assert "USER" in (shown["OverSubscribe"], shown.get("Exclusive"))
    isolating.create("q", gpus=1, annotations=annotations)
    assert isolating.bound("q") == "node-2"  # Pods of the same user share the node
    native = ("sbatch", "-w", "node-2", "-n1", "--mem=10", "--job-name=native", "--wrap", "sleep 60")
    isolating.cluster.run_slurm(*native, user="bob")
    eventually(lambda: isolating.squeue()["native"].reason != "None", "Slurm has looked at it")
    assert isolating.squeue()["native"].state == "PENDING"


def pod_whose_gpus_a_native_job_may_use_is_refused(isolating: Actors) -> None:
    answer = isolating.apply(pod("refused", gpus=1))
    assert answer.returncode != 0
    assert f"annotation {PREFIX}exclusive to none, for a whole node, or to user" in answer.stderr
    assert "the policy does not list the user of the extender's token in podUsers" in answer.stderr
    sliced, user = {"nvidia.com/gpu.shared": "1"}, {"user-id": "2001"}
    for field in ("containers", "initContainers"):
        named = pod("sliced", annotations=user)  # Slurm does not count a GPU of this name
        container = {"name": "sliced", "image": "busybox", "resources": {"limits": sliced}}
        named["spec"].setdefault(field, []).append(container)
        answer = isolating.apply(named)
        assert answer.returncode != 0
        assert "nvidia.com/gpu.shared: Slurm does not count this GPU" in answer.stderr
        assert '"nvidia.com/gpu.shared": "shard"} (gpuTypes in the chart)' in answer.stderr
    isolating.create("alone", gpus=1, annotations={"exclusive": "none"})
    isolating.bound("alone")


def test_warning_says_that_a_native_job_may_use_the_gpus(
    actors: Actors,
) -> None:
    answer = actors.apply(pod("p", gpus=1))
    assert "Warning: a native job may use the GPUs of this Pod" in answer.stderr
    actors.bound("p")


# Annotations of the extender


def forged(actors: Actors, name: str) -> dict[str, str]:
    """Returns the extender's annotations of a Pod."""
    annotations: dict[str, Any] = (actors.see(name) or {})["metadata"]["annotations"]
    return {key: value for key, value in annotations.items() if key.startswith("slurm-extender.io/")}


@pytest.fixture
def unguarded(actors: Actors) -> Iterator[None]:
    """Lets any user write the extender's annotations, until the end of the test."""
    binding = actors.cluster.kubectl("get", GUARD, "-o", "yaml").stdout
    actors.cluster.kubectl("delete", GUARD)
    # The Pod stays unbound: a bound Pod would block its Node for Pods that need the whole Node.
    actors.create("probe", scheduler="default-scheduler", nodeSelector={"is": "nowhere"})
    eventually(lambda: actors.kubectl(*forging(actors, "probe")).returncode == 0, "unguarded")
    yield
    made = yaml.safe_load(binding)
    del made["metadata"]["resourceVersion"]
    actors.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(made))
    guarded(actors, "probe")


def guarded(actors: Actors, name: str) -> str:
    """Waits until kube-apiserver refuses a forged annotation, and returns the message."""
    eventually(lambda: actors.kubectl(*forging(actors, name)).returncode != 0, "guarded")
    return actors.kubectl(*forging(actors, name)).stderr


def forging(actors: Actors, name: str) -> tuple[str, ...]:
    """Returns the arguments for kubectl to forge an annotation. The value is always new, because
    kube-apiserver allows a write without a change."""
    value = f"slurm-extender.io/job-id={time.monotonic_ns()}"
    return ("annotate", "pod", actors.full(name), "--overwrite", value)


def test_only_the_extender_writes_its_annotations_and_labels(actors: Actors) -> None:
    actors.create("p")
    actors.bound("p")
    told = "annotations and labels under slurm-extender.io/ are the extender's to write"
    assert told in guarded(actors, "p")
    before = forged(actors, "p")
    for how, value in (("annotate", "-"), ("label", "-"), ("label", "=1")):
        changed = (how, "pod", actors.full("p"), "--overwrite", f"slurm-extender.io/job-id{value}")
        assert told in actors.kubectl(*changed).stderr
    annotate(actors, "p", "mine=yes")
    assert forged(actors, "p") == before
    assert (actors.see("p") or {})["metadata"]["annotations"]["mine"] == "yes"


def test_status_write_cannot_change_annotations_of_the_extender(actors: Actors) -> None:
    actors.create("p")
    actors.bound("p")
    guarded(actors, "p")
    before = forged(actors, "p")
    pod = actors.full("p")
    for numbers in ({"job-id": "7"}, {"job-id": None}, {"attempt": "900"}):
        annotations = {f"slurm-extender.io/{key}": value for key, value in numbers.items()}
        patch = json.dumps({"metadata": {"annotations": annotations}})
        refused = actors.kubectl("patch", "pod", pod, "--subresource=status", "-p", patch)
        assert "the extender's to write" in refused.stderr
    told = json.dumps({"metadata": {"annotations": {"mine": "yes"}}, "status": {"message": "fine"}})
    actors.cluster.kubectl("patch", "pod", pod, "--subresource=status", "-p", told)
    assert forged(actors, "p") == before
    assert (actors.see("p") or {})["metadata"]["annotations"]["mine"] == "yes"


def test_binding_cannot_write_annotations_of_the_extender(actors: Actors) -> None:
    """kube-apiserver has a newer and an older API for bindings."""
    pod = actors.full("p")
    actors.create("p", scheduler="nobody")
    annotations = {"slurm-extender.io/job-id": "7", "slurm-extender.io/node": "node-1"}
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod, "annotations": annotations},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "node-1"},
    }
    for path in (f"pods/{pod}/binding", "bindings"):
        way = f"/api/v1/namespaces/{actors.namespace}/{path}"
        refused = actors.kubectl("create", "--raw", way, "-f", "-", stdin=json.dumps(binding))
        assert "the extender's to write" in refused.stderr
        assert actors.node_of("p") is None


def test_other_subresources_cannot_change_annotations_of_the_extender(actors: Actors) -> None:
    """kube-apiserver ignores annotations in writes to other subresources. Before Kubernetes 1.32 a Pod
    has no `resize`."""
    actors.create("p")
    actors.bound("p")
    before = forged(actors, "p")
    patch = json.dumps({"metadata": {"annotations": {"slurm-extender.io/job-id": "7"}}})
    for subresource in ("ephemeralcontainers", "resize"):
        actors.api.patch(
            f"/pods/{actors.full('p')}/{subresource}",
            content=patch,
            headers={"Content-Type": "application/merge-patch+json"},
        )
        assert forged(actors, "p") == before


def copied(actors: Actors, name: str, copy: str) -> CompletedProcess[str]:
    """Creates a Pod as `kubectl debug --copy-to` does: with the annotations of another Pod, and without
    a Node."""
    seen = actors.see(name) or {}
    spec = seen["spec"] | {"nodeName": None, "schedulingGates": None}
    metadata = {"name": copy, "annotations": seen["metadata"]["annotations"]}
    return actors.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


def touched(actors: Actors, name: str) -> None:
    """Adds the annotations of an adopted or woken Pod."""
    notes = ("adopted-as=40000000", "capacity-freed=now", "rank=0")
    options = ("--as=slurm-extender", "--overwrite", *(f"slurm-extender.io/{each}" for each in notes))
    actors.cluster.kubectl("annotate", "pod", actors.full(name), *options)


def test_copy_of_a_touched_unmanaged_pod_loses_extender_annotations(actors: Actors) -> None:
    actors.create("p", scheduler="default-scheduler", own_annotations={"mine": "yes"})
    touched(actors, "p")
    answer = copied(actors, "p", "copy")
    assert answer.returncode == 0, answer.stderr
    assert forged(actors, "copy") == {}
    assert (actors.see("copy") or {})["metadata"]["annotations"]["mine"] == "yes"


def test_copy_of_a_managed_pod_gets_its_own_job(actors: Actors) -> None:
    actors.create("p")
    actors.bound("p")
    answer = copied(actors, "p", "copy")
    assert answer.returncode == 0, answer.stderr
    actors.bound("copy")
    jobs = [forged(actors, name)["slurm-extender.io/job-id"] for name in ("p", "copy")]
    assert jobs[0] != jobs[1]


def test_copy_with_extender_annotations_is_rejected_without_an_extender(actors: Actors) -> None:
    actors.create("p", scheduler="default-scheduler")
    touched(actors, "p")
    guarded(actors, "p")
    actors.cluster.stop("extender")
    answer = copied(actors, "p", "copy")
    assert answer.returncode != 0
    told = "annotations and labels under slurm-extender.io/ are the extender's to write"
    assert told in answer.stderr


# Requests of a running Pod


def resized(actors: Actors, name: str, **requests: str) -> CompletedProcess[str]:
    """Resizes the requests of a running Pod."""
    containers = [{"name": "c", "resources": {"requests": requests}}]
    patch = json.dumps({"spec": {"containers": containers}})
    return actors.kubectl("patch", "pod", actors.full(name), "--subresource=resize", "-p", patch)


def runs_resizable(actors: Actors, name: str) -> None:
    """Waits until the Pod runs, and writes the resources of the containers into the Pod's status, as a
    kubelet does. kwok does not write the resources, and without the resources Kubernetes does not resize
    the Pod."""

    def told() -> list[dict[str, Any]]:
        return list((actors.see(name) or {})["status"].get("containerStatuses") or ())

    (told_by_kwok,) = eventually(told, f"{name} runs")
    status = {"containerStatuses": [told_by_kwok | {"resources": {"requests": {"cpu": "2"}}}]}
    patch = ("--subresource=status", "--type=merge", "-p", json.dumps({"status": status}))
    actors.cluster.kubectl("patch", "pod", actors.full(name), *patch)


def requests_of(actors: Actors, name: str) -> dict[str, str]:
    return dict((actors.see(name) or {})["spec"]["containers"][0]["resources"]["requests"])


def test_running_pod_cannot_be_resized_above_its_job(actors: Actors) -> None:
    if actors.kubernetes() < (1, 33):
        pytest.skip("Pods are not resized in place by default")
    actors.create("p", cpu="2", memory="200Mi")
    actors.create("q", cpu="1", memory="100Mi", scheduler="default-scheduler")
    for name in ("p", "q"):
        actors.bound(name)
        runs_resizable(actors, name)
    for more in ({"cpu": "3"}, {"memory": "201Mi"}, {"cpu": "1", "memory": "1Gi"}, {"cpu": "2001m"}):
        answer = resized(actors, "p", **more)
        assert answer.returncode != 0
        assert "may be resized to less, and not to more" in answer.stderr
    answer = resized(actors, "p", cpu="1500m", memory="0.1Gi")
    assert answer.returncode == 0, answer.stderr
    assert requests_of(actors, "p")["cpu"] == "1500m"
    answer = resized(actors, "q", cpu="2", memory="1Gi")
    assert answer.returncode == 0, answer.stderr  # an unmanaged Pod
    assert requests_of(actors, "q") == {"cpu": "2", "memory": "1Gi"}


@pytest.mark.usefixtures("policy", "unguarded")
def test_forged_annotations_do_not_prevent_the_eviction_of_a_pod(actors: Actors) -> None:
    """A thread forges annotations again and again, so that the eviction also meets with conflicts."""
    actors.create("p")
    actors.bound("p")
    pod, over = actors.full("p"), threading.Event()

    def forge() -> None:
        attempt = 2
        while not over.is_set():
            numbers = (f"slurm-extender.io/attempt={attempt}", f"slurm-extender.io/job-id={1 << 25}")
            actors.kubectl("annotate", "pod", pod, "--overwrite", *numbers)
            attempt += 1

    forger = threading.Thread(target=forge)
    forger.start()
    try:
        actors.scancel("p")
        eventually(lambda: is_leaving(actors, "p"), "p told to leave")
    finally:
        over.set()
        forger.join()
    # The forging must end first: each change of a Pod restarts the delay after which kwok ends the Pod.
    actors.gone("p")
    assert actors.event("p", "SlurmJobCancelled")
    eventually(lambda: actors.job_of("p") is None, "no other job")


@pytest.mark.usefixtures("policy", "unguarded")
def test_forged_annotations_do_not_give_a_pod_the_node_of_another_pod(actors: Actors) -> None:
    """The Pod has forged annotations at the creation, gets more while waiting, and then loses the
    gate."""
    theirs = forged(actors, occupy(actors))
    actors.create("p", annotations={"required-nodes": "node-1"}, own_annotations=theirs)
    actors.queued("p")
    assert forged(actors, "p").get("slurm-extender.io/node") is None
    annotate(actors, "p", *(f"{key}={value}" for key, value in theirs.items()))
    gates = [{"op": "remove", "path": "/spec/schedulingGates"}]
    actors.cluster.kubectl("patch", "pod", actors.full("p"), "--type=json", "-p", json.dumps(gates))
    eventually(lambda: "FailedScheduling" in actors.events("p"), "kube-scheduler tried")
    assert "is not this Pod's placeholder" in actors.events("p")["FailedScheduling"]
    assert actors.node_of("p") is None
    assert owner(actors, "p") == "alice"
    actors.delete("first")
    assert actors.bound("p") == "node-1"
    mine = actors.job_of("p")
    assert mine is not None
    assert forged(actors, "p")["slurm-extender.io/job-id"] == str(mine.id)


@pytest.mark.usefixtures("policy", "unguarded")
def test_forged_annotations_of_a_bound_pod_change_no_job(actors: Actors) -> None:
    actors.create("p")
    actors.create("q")
    actors.bound("p")
    actors.bound("q")
    before = actors.job_of("p"), actors.job_of("q")
    theirs = forged(actors, "q")
    annotate(actors, "p", *(f"{key}={value}" for key, value in theirs.items()))
    actors.cluster.kill("extender")
    actors.cluster.start("extender")
    actors.create("later")
    actors.bound("later")
    assert (actors.job_of("p"), actors.job_of("q")) == before
    actors.delete("p")
    eventually(lambda: actors.job_of("p") is None, "its own job ended")
    assert actors.job_of("q") == before[1]
