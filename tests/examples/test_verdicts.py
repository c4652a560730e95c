"""Tests of the verdicts FAIL and SKIPPED, on the demo's cluster. A script fails if something goes wrong,
and is skipped if the cluster lacks a feature. The message names the cause."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.eventually import eventually, eventually_not
from tests.examples.reader import Reader, Told

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

QUICK = {"WITHIN": "5"}
"""Variables for scripts with an expected failure: a wait gives up after 5 s."""
NOBODY = "rules:\n- name: others\n  namespaces: [elsewhere]\n  default: {user: 2001}\n"
MAIN_ALONE = """\
rules:
- name: ours
  namespaces: ["*"]
  default: {user: token}
  allow: {partitions: [main]}
"""


@contextmanager
def policy(reader: Reader, text: str) -> Iterator[None]:
    """Replaces the extender's policy during the block."""
    cluster = reader.cluster
    before = cluster.policy_file.read_text()

    def read_after(write: str) -> None:
        log = cluster.logs / "extender.log"
        count = log.read_text().count('"event":"policy",')
        cluster.policy_file.write_text(write)
        eventually(lambda: log.read_text().count('"event":"policy",') > count, "the policy read")

    read_after(text)
    try:
        yield
    finally:
        read_after(before)


def job_of(reader: Reader, name: str) -> str:
    """Waits until a job with a name that begins with `name` runs, and returns the job's id."""

    def see() -> str:
        lines = reader.cluster.run_slurm("squeue", "-h", "-t", "R", "-o", "%j %i").stdout.splitlines()
        return next((line.split()[1] for line in lines if line.startswith(name)), "")

    return eventually(see, f"a job of {name} runs")


def fails(told: Told, words: str) -> None:
    assert told.verdict == "FAIL", told
    assert re.search(words, told.why), told.why


def skips(told: Told, words: str) -> None:
    assert told.verdict == "SKIPPED", told
    assert re.search(words, told.why), told.why


# Failures


def test_example_fails_at_once_without_an_extender(demo: Reader) -> None:
    demo.cluster.stop("extender")
    told = demo.runs("01-a-pod")
    demo.cluster.start("extender")
    fails(told, r"kubectl create: .*failed calling webhook")


def test_pod_that_slurm_does_not_start_fails_with_its_condition(demo: Reader) -> None:
    demo.cluster.run_slurm("scontrol", "update", "PartitionName=main", "State=DOWN")
    told = demo.runs("01-a-pod", **QUICK)
    demo.cluster.run_slurm("scontrol", "update", "PartitionName=main", "State=UP")
    fails(told, r"Pod a-pod runs: not within 5 s: it is Pending, and says: .*PartitionDown")


def test_cancelled_job_has_not_reached_its_time_limit(demo: Reader) -> None:
    running = demo.begins("10-a-time-limit")
    running.prints("TIME_LIMIT")
    job = job_of(demo, "a-time-limit")
    demo.cluster.run_slurm("scancel", job)
    fails(running.told(), rf"job {job} did not reach its time limit: squeue says: CANCELLED")


def test_node_without_a_drain_fails_the_example(demo: Reader) -> None:
    """The extender of this cluster drains no nodes."""
    demo.cluster.stop("extender")
    demo.cluster.start("extender", env={"SLURM_EXTENDER_DRAIN_NODES": "false"})
    told = demo.runs("20-a-drain", **QUICK)
    demo.cluster.restart("extender")
    fails(told, r"Slurm's node node-\d is drained: not within 5 s: idle|mixed")
    cordoned = demo.cluster.kubectl("get", "nodes", "-o", "jsonpath={.items[*].spec.unschedulable}")
    assert cordoned.stdout == ""


def test_native_job_that_ends_too_early_fails_the_example(demo: Reader) -> None:
    running = demo.begins("06-waiting", **QUICK)
    demo.cluster.run_slurm("scancel", job_of(demo, "waiting-native"))
    fails(running.told(), r"says why it waits: not within 5 s|native job \d+ runs: not within 5 s")


def test_object_that_cannot_be_deleted_is_named(demo: Reader) -> None:
    """A finalizer keeps the Pod from being deleted."""
    keep = '{"metadata": {"finalizers": ["example.com/keep"]}}'
    running = demo.begins("09-a-whole-node", **QUICK)
    running.prints("created")
    demo.cluster.kubectl("patch", "pod", "a-whole-node", "--type=merge", "-p", keep)
    told = running.told()
    again = demo.runs("09-a-whole-node")
    release = '{"metadata": {"finalizers": []}}'
    demo.cluster.kubectl("patch", "pod", "a-whole-node", "--type=merge", "-p", release)
    fails(told, "left behind: .*a-whole-node")
    fails(
        again,
        "a-whole-node.*: of a run before this[?] kubectl -n default delete -f examples/09-a-whole-node",
    )


def test_leftover_reservation_is_named_with_its_fix(demo: Reader) -> None:
    reservation = "ReservationName=a-reservation"
    at = ("StartTime=now", "Duration=5", "Nodes=node-1", "Users=root")
    demo.cluster.run_slurm("scontrol", "create", "reservation", reservation, *at)
    try:
        told = demo.runs("16-a-reservation")
    finally:
        demo.cluster.run_slurm("scontrol", "delete", reservation)
    fails(told, f"a-reservation already: of a run before this[?] scontrol delete {reservation}")


def test_interrupted_example_leaves_nothing(demo: Reader) -> None:
    before = demo.what_there_is()
    running = demo.begins("12-a-stateful-set")
    job_of(demo, "a-stateful-set-0")
    running.process.send_signal(signal.SIGTERM)
    fails(running.told(), "interrupted")
    eventually_not(lambda: demo.what_there_is() != before, "all is as it was")


# Features that the cluster lacks

LACKS = {
    "08-a-part-of-a-gpu": "has shards",
    "14-a-user": "USER_ID names no user but root",
    "15-an-account": "Slurm has no accounting",
    "17-preempted-by-a-job": "PreemptType is not preempt/partition_prio",
    "18-preempts-a-job": "PreemptType is not preempt/partition_prio",
    "19-adoption": "Pods are not adopted here",
    "21-an-outage": "OUTAGE_BEGINS and OUTAGE_ENDS are no commands",
    "22-a-roll-out": "ROLL_OUT and ROLL_BACK are no commands",
}


@pytest.mark.parametrize("name", LACKS)
def test_missing_feature_of_the_demo_cluster_is_named(demo: Reader, name: str) -> None:
    skips(demo.runs(name), LACKS[name])


@pytest.mark.parametrize("name", ["02-a-deployment", "16-a-reservation"])
def test_example_for_a_slurm_administrator_is_skipped_for_a_user(demo: Reader, name: str) -> None:
    skips(demo.runs(name, SLURM_AS="alice"), "you may not, in Slurm: (scancel|scontrol create)")


def test_example_is_skipped_if_the_policy_admits_no_pod(demo: Reader) -> None:
    with policy(demo, NOBODY):
        skips(demo.runs("01-a-pod"), "the policy lets this Pod into no job: .*no rule of the policy")


def test_example_is_skipped_if_the_policy_refuses_its_request(demo: Reader) -> None:
    with policy(demo, MAIN_ALONE):
        skips(demo.runs("14-a-user", USER_ID="2001"), "the policy does not allow user-id 2001")
        skips(demo.runs("16-a-reservation"), "the policy does not allow reservation a-reservation")


def test_example_of_a_gpu_is_skipped_if_gpus_may_not_be_shared(demo: Reader) -> None:
    demo.cluster.stop("extender")
    demo.cluster.start("extender", env={"SLURM_EXTENDER_SHARED_GPUS": "refuse"})
    told = demo.runs("07-a-gpu")
    demo.cluster.restart("extender")
    skips(told, "Pods may not share a node's GPUs here")


def test_example_is_skipped_if_commands_are_missing(demo: Reader, tmp_path: Path) -> None:
    skips(demo.runs("01-a-pod", PATH="/usr/bin:/bin"), "not in PATH:.* squeue")


# All examples together


def test_run_all_prints_a_table(demo: Reader) -> None:
    running = demo.runs_all("01", "05", "08")
    printed = running.whole()
    lines = [line.split(maxsplit=4) for line in printed.splitlines()]
    assert [line[:2] for line in lines[:3]] == [
        ["01-a-pod", "PASS"],
        ["05-refused-at-once", "PASS"],
        ["08-a-part-of-a-gpu", "SKIPPED"],
    ]
    assert printed.splitlines()[3:] == ["2 passed, 0 failed, 1 skipped"]
    assert running.process.returncode == 0


def test_run_all_shows_the_output_of_a_failed_script(demo: Reader) -> None:
    running = demo.runs_all("19", ADOPTS="yes", **QUICK)
    printed = running.whole()
    assert re.search(r"^19-adoption +FAIL +\d+ s  Pod adoption has a job: not within 5 s", printed)
    assert "    $ kubectl apply -f pod.yaml\n" in printed
    assert printed.endswith("0 passed, 1 failed, 0 skipped\n")
    assert running.process.returncode == 1
