"""A Pod is who the policy says it is, and gets what the policy lets it have."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import httpx
import pytest
import yaml

from deploy.local.errors import ClusterError
from tests.end_to_end.people import PREFIX, People, eventually, pod
from tests.end_to_end.test_disagreements import without_webhook

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
    """The policy of the cluster, for as long as a test has it."""

    def __init__(self, people: People) -> None:
        self._people = people
        self._file = people.cluster.policy_file
        self._first = self._file.read_text()

    def write(self, text: str) -> None:
        """Waits until the extender has read it."""
        before = self._read()
        self._file.write_text(text)
        eventually(lambda: self._read() > before, "the policy read")

    def spoil(self) -> None:
        self._file.write_text("preset: closed\n")

    def restore(self) -> None:
        if self._file.read_text() != self._first:
            self.write(self._first)

    def _read(self) -> int:
        """How many policies the extender says it has read."""
        log = (self._people.cluster.logs / "extender.log").read_text()
        return log.count('"event":"policy",')


@pytest.fixture
def policy(people: People) -> Iterator[Policy]:
    given = Policy(people)
    given.write(ALICE)
    yield given
    given.restore()


def is_leaving(people: People, name: str) -> bool:
    seen = people.see(name)
    return seen is None or "deletionTimestamp" in seen["metadata"]


def owner(people: People, name: str) -> str | None:
    """Whose job squeue shows for a Pod."""
    lines = people.cluster.run_slurm("squeue", "-h", "-o", "%j %u").stdout.splitlines()
    return dict(line.split() for line in lines).get(people.job_name(name))


def annotate(people: People, name: str, *annotations: str) -> None:
    people.cluster.kubectl("annotate", "pod", people.full(name), "--overwrite", *annotations)


def refused(people: People, name: str) -> str:
    """Waits until the Pod is refused, and returns why."""
    eventually(lambda: people.condition(name).get("reason") == "Invalid", f"{name} refused")
    eventually(lambda: "Invalid" in people.events(name), "event")
    assert people.events(name)["Invalid"] == people.condition(name)["message"]
    return people.condition(name)["message"]


def occupy(people: People) -> str:
    """Takes the whole of node-1 in Slurm, though not in Kubernetes, and returns the Pod's name."""
    people.create("first", annotations={"required-nodes": "node-1", "exclusive": "none"})
    people.bound("first")
    return "first"


def create_waiting(people: People, name: str) -> None:
    people.create(name, annotations={"required-nodes": "node-1"})
    people.queued(name)


# Who


@pytest.mark.usefixtures("policy")
def test_a_pod_runs_as_the_user_of_its_namespace(people: People) -> None:
    people.create("p")
    people.bound("p")
    assert owner(people, "p") == "alice"
    assert people.scontrol("p")["GroupId"] == "alice(2001)"


@pytest.mark.usefixtures("policy")
def test_a_service_account_may_have_a_user_of_its_own(people: People) -> None:
    people.create("p", serviceAccountName="robot-1")
    people.bound("p")
    assert owner(people, "p") == "bob"


def test_jobs_are_given_a_time_limit_and_no_longer_one(people: People, policy: Policy) -> None:
    limits = ALICE.replace("{user: 2001}", "{user: 2001, timeout: 3600}")
    policy.write(limits.replace("maxPriority: 1000", "maxTimeout: 7200"))
    people.create("p")
    people.bound("p")
    assert people.scontrol("p")["TimeLimit"] == "01:00:00"
    people.create("q", annotations={"timeout": "7200"})
    people.bound("q")
    assert people.scontrol("q")["TimeLimit"] == "02:00:00"
    told = people.apply(pod("r", annotations={"timeout": "7201"})).stderr
    assert "a time limit of 121 minutes" in told
    assert "not allowed by the policy's rule 'ours', which allows up to 120 minutes" in told


def test_the_tokens_own_user_may_be_given_too(people: People, policy: Policy) -> None:
    policy.write(ALICE.replace("2001", "token"))
    people.create("p")
    people.bound("p")
    assert owner(people, "p") == "root"
    assert (
        "user-id: '2001' is not allowed"
        in people.apply(pod("q", annotations={"user-id": "2001"})).stderr
    )


@pytest.mark.usefixtures("policy")
def test_nobody_takes_anothers_identity(people: People) -> None:
    answer = people.apply(pod("p", annotations={"user-id": "2002"}))
    assert answer.returncode != 0
    told = "annotation sunk.coreweave.com/user-id: '2002' is not allowed by the policy's rule 'ours'"
    assert f"{told}, which allows 2001" in answer.stderr
    answer = people.apply(pod("q", annotations={"user-id": "0", "group-id": "2002"}))
    assert "user-id: '0' is not allowed" in answer.stderr
    assert "group-id: '2002' is not allowed" in answer.stderr
    assert people.pods() == {}


def test_without_a_rule_there_is_no_pod(people: People, policy: Policy) -> None:
    policy.write(NOBODY)
    answer = people.apply(pod("p"))
    assert "no rule of the policy is for Pods of namespace default" in answer.stderr
    assert people.pods() == {}


@pytest.mark.usefixtures("policy")
def test_a_pod_that_came_without_the_webhook_is_judged_too(people: People) -> None:
    with without_webhook(people):  # kube-apiserver takes a moment to know
        foreign = {"user-id": "2002"}
        eventually(lambda: people.apply(pod("p", annotations=foreign)).returncode == 0, "created")
    assert "rule 'ours'" in refused(people, "p")
    assert people.job_of("p") is None
    annotate(people, "p", PREFIX + "user-id-")
    people.bound("p")
    assert owner(people, "p") == "alice"


# What


@pytest.mark.usefixtures("policy")
def test_priority_is_the_policys_to_allow(people: People) -> None:
    answer = people.apply(pod("p", annotations={"priority": "1001"}))
    assert "priority: '1001' is not allowed by the policy's rule 'ours', which allows up to 1000" in (
        answer.stderr
    )
    people.create("q", annotations={"priority": "1000"})
    people.bound("q")
    assert people.scontrol("q")["Priority"] == "1000"


@pytest.fixture
def partition(people: People, request: pytest.FixtureRequest) -> Iterator[str]:
    """A partition with this limit, for as long as a test has it."""
    name, limit = "limited", str(request.param)
    people.cluster.run_slurm("scontrol", "create", f"PartitionName={name}", "Nodes=node-1", limit)
    yield name
    people.clean_up()
    people.cluster.run_slurm("scontrol", "delete", f"PartitionName={name}")


@pytest.mark.parametrize("partition", ["RootOnly=YES"], indirect=True)
def test_a_partition_that_is_roots_is_the_policys_to_allow(
    people: People, policy: Policy, partition: str
) -> None:
    """Slurm keeps others than root waiting there, but a job of the token's own user it would run."""
    ours = ALICE.replace("2001", "token")
    policy.write(ours)
    answer = people.apply(pod("p", annotations={"partition": partition}))
    assert f"partition: '{partition}' is not allowed" in answer.stderr
    policy.write(ours.replace("[main]", f"[main, {partition}]"))
    people.create("q", annotations={"partition": partition})
    people.bound("q")
    assert owner(people, "q") == "root"


@pytest.mark.parametrize("partition", ["AllowGroups=bob"], indirect=True)
def test_what_slurm_does_not_let_the_user_have_slurm_itself_refuses(
    people: People, policy: Policy, partition: str
) -> None:
    allowed = ALICE.replace("[main]", f"[main, {partition}]")
    policy.write(allowed)
    people.create("p", annotations={"partition": partition})
    eventually(lambda: people.condition("p").get("reason") == "AccountNotAllowed", "condition")
    assert "uid 2001 not in group permitted to use this partition" in people.condition("p")["message"]
    policy.write(allowed.replace("2001", "2002"))
    people.bound("p")
    assert owner(people, "p") == "bob"


# When it changes


@pytest.mark.usefixtures("policy")
def test_an_annotation_that_changes_while_the_pod_waits_is_judged_again(people: People) -> None:
    occupy(people)
    create_waiting(people, "p")
    assert owner(people, "p") == "alice"
    foreign = PREFIX + "user-id=2002"
    with pytest.raises(ClusterError, match="user-id: '2002' is not allowed"):
        annotate(people, "p", foreign)

    def takes_it() -> bool:
        try:
            annotate(people, "p", foreign)
        except ClusterError:  # kube-apiserver takes a moment to know that nobody is asked any more
            return False
        return True

    with without_webhook(people):
        eventually(takes_it, "annotated")
    assert "user-id: '2002' is not allowed" in refused(people, "p")
    eventually(lambda: people.job_of("p") is None, "its job cancelled")
    annotate(people, "p", PREFIX + "user-id-")
    people.queued("p")
    assert owner(people, "p") == "alice"


def test_a_policy_that_changes_counts_for_pods_that_wait_and_no_others(
    people: People, policy: Policy
) -> None:
    first = occupy(people)
    create_waiting(people, "p")
    before = people.job_of(first)
    policy.write(NOBODY)
    assert "no rule of the policy" in refused(people, "p")
    eventually(lambda: people.job_of("p") is None, "its job cancelled")
    assert people.job_of(first) == before
    policy.write(BOB)
    eventually(lambda: owner(people, "p") == "bob", "submitted for another")
    assert (people.job_of(first), owner(people, first)) == (before, "alice")
    assert people.node_of(first) == "node-1"


def test_a_policy_that_changes_while_the_extender_is_down_counts_when_it_comes_back(
    people: People, policy: Policy
) -> None:
    first = occupy(people)
    create_waiting(people, "p")
    before = people.job_of(first)
    people.cluster.stop("extender")
    people.cluster.policy_file.write_text(BOB)
    people.cluster.start("extender")
    eventually(lambda: owner(people, "p") == "bob", "submitted for another")
    assert (people.job_of(first), owner(people, first)) == (before, "alice")


def test_a_bad_file_keeps_the_last_good_policy_and_alerts(people: People, policy: Policy) -> None:
    policy.spoil()
    trouble = eventually(lambda: people.trouble("policy"), "/readyz and the log tell")
    assert "policy.yaml:1: preset: must be restricted or open" in trouble
    assert people.ready()[0] == 200
    metrics = f"http://127.0.0.1:{people.cluster.ports['extender-metrics']}/metrics"
    assert "slurm_extender_policy_good 0.0" in httpx.get(metrics).text
    assert "the last good policy counts" in trouble
    people.create("p")
    people.bound("p")
    assert owner(people, "p") == "alice"
    policy.write(BOB)
    eventually(lambda: "policy" not in people.ready()[1]["troubles"], "trouble over")
    assert "slurm_extender_policy_good 1.0" in httpx.get(metrics).text


def test_a_bad_file_at_the_start_ends_the_program(quiet: People, tmp_path: Path) -> None:
    bad = tmp_path / "policy.yaml"
    bad.write_text("preset: closed\nrules: [x]\n")
    quiet.cluster.start("extender", env={"SLURM_EXTENDER_POLICY_FILE": str(bad)}, wait=False)
    assert quiet.cluster.wait_exit("extender") == 2
    log = (quiet.cluster.logs / "extender.log").read_text()
    assert f"SLURM_EXTENDER_POLICY_FILE: {bad}:1: preset: must be restricted or open\n" in log
    assert f"SLURM_EXTENDER_POLICY_FILE: {bad}:2: rules[0]: has fields" in log


# Whose GPUs


@pytest.fixture
def isolating(quiet: People) -> Iterator[People]:
    """The setting's default, where alice's user is one that only Pods have."""
    file = quiet.cluster.policy_file
    before = file.read_text()
    file.write_text("preset: open\npodUsers: [2001]\n")
    quiet.cluster.start("extender", env={"SLURM_EXTENDER_SHARED_GPUS": "isolate"})
    yield quiet
    quiet.cluster.stop("extender")
    file.write_text(before)


def test_no_native_job_is_beside_a_pod_that_has_gpus(isolating: People) -> None:
    annotations = {"user-id": "2001", "required-nodes": "node-2"}
    answer = isolating.apply(pod("p", gpus=1, annotations=annotations))
    assert "Warning: exclusive is user for this Pod" in answer.stderr
    isolating.bound("p")
    shown = isolating.scontrol("p")
    assert "USER" in (shown["OverSubscribe"], shown.get("Exclusive"))
    isolating.create("q", gpus=1, annotations=annotations)
    assert isolating.bound("q") == "node-2"  # Pods of one user share it
    native = ("sbatch", "-w", "node-2", "-n1", "--mem=10", "--job-name=native", "--wrap", "sleep 60")
    isolating.cluster.run_slurm(*native, user="bob")
    eventually(lambda: isolating.squeue()["native"].reason != "None", "Slurm has looked at it")
    assert isolating.squeue()["native"].state == "PENDING"


def test_a_pod_whose_gpus_a_native_job_may_use_is_refused_with_the_cures(isolating: People) -> None:
    answer = isolating.apply(pod("p", gpus=1))
    assert answer.returncode != 0
    assert f"annotation {PREFIX}exclusive to none, for a node of its own, or to user" in answer.stderr
    assert "of which the user of the extender's token is none" in answer.stderr
    isolating.create("q", gpus=1, annotations={"exclusive": "none"})
    isolating.bound("q")


def test_where_it_is_allowed_the_author_is_warned_that_a_native_job_may_use_the_gpus(
    people: People,
) -> None:
    answer = people.apply(pod("p", gpus=1))
    assert "Warning: a native job may use the GPUs of this Pod" in answer.stderr
    people.bound("p")


# What a Pod says of itself


def forged(people: People, name: str) -> dict[str, str]:
    """The bookkeeping of a Pod that is bound."""
    annotations: dict[str, Any] = (people.see(name) or {})["metadata"]["annotations"]
    return {key: value for key, value in annotations.items() if key.startswith("slurm-extender.io/")}


@pytest.fixture
def unguarded(people: People) -> Iterator[None]:
    """Where kube-apiserver lets anybody write what is the extender's."""
    binding = people.cluster.kubectl("get", GUARD, "-o", "yaml").stdout
    people.cluster.kubectl("delete", GUARD)
    # Nobody binds it: on a Node it would be in the way of who gets that Node alone.
    people.create("probe", scheduler="default-scheduler", nodeSelector={"is": "nowhere"})
    eventually(lambda: people.kubectl(*forging(people, "probe")).returncode == 0, "unguarded")
    yield
    made = yaml.safe_load(binding)
    del made["metadata"]["resourceVersion"]
    people.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(made))
    guarded(people, "probe")


def guarded(people: People, name: str) -> str:
    """Waits until a forgery is refused, and returns what is told; that takes a moment."""
    eventually(lambda: people.kubectl(*forging(people, name)).returncode != 0, "guarded")
    return people.kubectl(*forging(people, name)).stderr


def forging(people: People, name: str) -> tuple[str, ...]:
    """Another value each time: what changes nothing is let pass."""
    value = f"slurm-extender.io/job-id={time.monotonic_ns()}"
    return ("annotate", "pod", people.full(name), "--overwrite", value)


def test_nobody_else_writes_the_bookkeeping(people: People) -> None:
    people.create("p")
    people.bound("p")
    assert "annotations under slurm-extender.io/ are the extender's to write" in guarded(people, "p")
    before = forged(people, "p")
    removed = people.kubectl("annotate", "pod", people.full("p"), "slurm-extender.io/job-id-")
    assert "the extender's to write" in removed.stderr
    annotate(people, "p", "mine=yes")
    assert forged(people, "p") == before
    assert (people.see("p") or {})["metadata"]["annotations"]["mine"] == "yes"


def test_nobody_else_writes_the_bookkeeping_by_a_pods_status(people: People) -> None:
    people.create("p")
    people.bound("p")
    guarded(people, "p")
    before = forged(people, "p")
    pod = people.full("p")
    for numbers in ({"job-id": "7"}, {"job-id": None}, {"attempt": "900"}):
        annotations = {f"slurm-extender.io/{key}": value for key, value in numbers.items()}
        patch = json.dumps({"metadata": {"annotations": annotations}})
        refused = people.kubectl("patch", "pod", pod, "--subresource=status", "-p", patch)
        assert "the extender's to write" in refused.stderr
    told = json.dumps({"metadata": {"annotations": {"mine": "yes"}}, "status": {"message": "fine"}})
    people.cluster.kubectl("patch", "pod", pod, "--subresource=status", "-p", told)
    assert forged(people, "p") == before
    assert (people.see("p") or {})["metadata"]["annotations"]["mine"] == "yes"


def test_nobody_else_writes_the_bookkeeping_by_a_binding(people: People) -> None:
    pod = people.full("p")
    people.create("p", scheduler="nobody")
    annotations = {"slurm-extender.io/job-id": "7", "slurm-extender.io/node": "node-1"}
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod, "annotations": annotations},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "node-1"},
    }
    path = f"/api/v1/namespaces/{people.namespace}/pods/{pod}/binding"
    refused = people.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(binding))
    assert "the extender's to write" in refused.stderr
    assert people.node_of("p") is None


def copied(people: People, name: str, copy: str) -> CompletedProcess[str]:
    """Creates a Pod as `kubectl debug --copy-to` does: with annotations of another, and on no Node."""
    seen = people.see(name) or {}
    spec = seen["spec"] | {"nodeName": None, "schedulingGates": None}
    metadata = {"name": copy, "annotations": seen["metadata"]["annotations"]}
    return people.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


def touched(people: People, name: str) -> None:
    """The extender notes something on a Pod, as on one that it adopts or wakes."""
    notes = ("slurm-extender.io/adopted-as=40000000", "slurm-extender.io/capacity-freed=now")
    options = ("--as=slurm-extender", "--overwrite", *notes)
    people.cluster.kubectl("annotate", "pod", people.full(name), *options)


def test_a_copy_of_an_unmanaged_pod_that_was_touched_has_no_history(people: People) -> None:
    people.create("p", scheduler="default-scheduler", own_annotations={"mine": "yes"})
    touched(people, "p")
    answer = copied(people, "p", "copy")
    assert answer.returncode == 0, answer.stderr
    assert forged(people, "copy") == {}
    assert (people.see("copy") or {})["metadata"]["annotations"]["mine"] == "yes"


def test_a_copy_of_a_pod_of_ours_is_placed_for_itself(people: People) -> None:
    people.create("p")
    people.bound("p")
    answer = copied(people, "p", "copy")
    assert answer.returncode == 0, answer.stderr
    people.bound("copy")
    jobs = [forged(people, name)["slurm-extender.io/job-id"] for name in ("p", "copy")]
    assert jobs[0] != jobs[1]


def test_without_the_extender_a_copy_that_carries_its_notes_is_refused(people: People) -> None:
    people.create("p", scheduler="default-scheduler")
    touched(people, "p")
    guarded(people, "p")
    people.cluster.stop("extender")
    answer = copied(people, "p", "copy")
    assert answer.returncode != 0
    assert "annotations under slurm-extender.io/ are the extender's to write" in answer.stderr


# What a Pod has


def resized(people: People, name: str, **requests: str) -> CompletedProcess[str]:
    """Asks for other requests of a Pod that runs."""
    containers = [{"name": "c", "resources": {"requests": requests}}]
    patch = json.dumps({"spec": {"containers": containers}})
    return people.kubectl("patch", "pod", people.full(name), "--subresource=resize", "-p", patch)


def runs_resizable(people: People, name: str) -> None:
    """Waits until the Pod runs. A kubelet tells what its containers have, and kwok does not: a Pod of
    which nobody tells that is not resized at all."""

    def told() -> list[dict[str, Any]]:
        return list((people.see(name) or {})["status"].get("containerStatuses") or ())

    (told_by_kwok,) = eventually(told, f"{name} runs")
    status = {"containerStatuses": [told_by_kwok | {"resources": {"requests": {"cpu": "2"}}}]}
    patch = ("--subresource=status", "--type=merge", "-p", json.dumps({"status": status}))
    people.cluster.kubectl("patch", "pod", people.full(name), *patch)


def requests_of(people: People, name: str) -> dict[str, str]:
    return dict((people.see(name) or {})["spec"]["containers"][0]["resources"]["requests"])


def test_a_pod_that_runs_is_resized_to_what_its_job_has_and_not_to_more(people: People) -> None:
    if people.kubernetes() < (1, 33):
        pytest.skip("Pods are not resized in place by default")
    people.create("p", cpu="2", memory="200Mi")
    people.create("q", cpu="1", memory="100Mi", scheduler="default-scheduler")
    for name in ("p", "q"):
        people.bound(name)
        runs_resizable(people, name)
    for more in ({"cpu": "3"}, {"memory": "201Mi"}, {"cpu": "1", "memory": "1Gi"}, {"cpu": "2001m"}):
        answer = resized(people, "p", **more)
        assert answer.returncode != 0
        assert "may be resized to less, and not to more" in answer.stderr
    answer = resized(people, "p", cpu="1500m", memory="0.1Gi")
    assert answer.returncode == 0, answer.stderr
    assert requests_of(people, "p")["cpu"] == "1500m"
    answer = resized(people, "q", cpu="2", memory="1Gi")
    assert answer.returncode == 0, answer.stderr  # it is not ours
    assert requests_of(people, "q") == {"cpu": "2", "memory": "1Gi"}


@pytest.mark.usefixtures("policy", "unguarded")
def test_what_is_forged_on_a_pod_does_not_save_it_from_its_eviction(people: People) -> None:
    """It is forged again and again, so that the eviction meets with conflicts too."""
    people.create("p")
    people.bound("p")
    pod, over = people.full("p"), threading.Event()

    def forge() -> None:
        attempt = 2
        while not over.is_set():
            numbers = (f"slurm-extender.io/attempt={attempt}", f"slurm-extender.io/job-id={1 << 25}")
            people.kubectl("annotate", "pod", pod, "--overwrite", *numbers)
            attempt += 1

    forger = threading.Thread(target=forge)
    forger.start()
    try:
        people.scancel("p")
        eventually(lambda: is_leaving(people, "p"), "p told to leave")
    finally:
        over.set()
        forger.join()
    people.gone("p")  # forging on would hold up kwok, which begins anew whenever a Pod is changed
    assert people.event("p", "SlurmJobCancelled")
    eventually(lambda: people.job_of("p") is None, "no other job")


@pytest.mark.usefixtures("policy", "unguarded")
def test_a_pod_does_not_get_anothers_node_by_its_annotations(people: People) -> None:
    """Neither those that it is created with, nor those that it is given while it waits, ungated too."""
    theirs = forged(people, occupy(people))
    people.create("p", annotations={"required-nodes": "node-1"}, own_annotations=theirs)
    people.queued("p")
    assert forged(people, "p").get("slurm-extender.io/node") is None
    annotate(people, "p", *(f"{key}={value}" for key, value in theirs.items()))
    gates = [{"op": "remove", "path": "/spec/schedulingGates"}]
    people.cluster.kubectl("patch", "pod", people.full("p"), "--type=json", "-p", json.dumps(gates))
    eventually(lambda: "FailedScheduling" in people.events("p"), "kube-scheduler tried")
    assert "is not this Pod's placeholder" in people.events("p")["FailedScheduling"]
    assert people.node_of("p") is None
    assert owner(people, "p") == "alice"
    people.delete("first")
    assert people.bound("p") == "node-1"
    mine = people.job_of("p")
    assert mine is not None
    assert forged(people, "p")["slurm-extender.io/job-id"] == str(mine.id)


@pytest.mark.usefixtures("policy", "unguarded")
def test_what_is_forged_on_a_bound_pod_touches_neither_job(people: People) -> None:
    people.create("p")
    people.create("q")
    people.bound("p")
    people.bound("q")
    before = people.job_of("p"), people.job_of("q")
    theirs = forged(people, "q")
    annotate(people, "p", *(f"{key}={value}" for key, value in theirs.items()))
    people.cluster.kill("extender")
    people.cluster.start("extender")
    people.create("later")
    people.bound("later")
    assert (people.job_of("p"), people.job_of("q")) == before
    people.delete("p")
    eventually(lambda: people.job_of("p") is None, "its own job ended")
    assert people.job_of("q") == before[1]
