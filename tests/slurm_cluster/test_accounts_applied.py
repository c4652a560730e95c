"""Tests of `slurm-cluster accounts` with a real slurmdbd and MariaDB of each release."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from deploy.local.cluster import Cluster
from deploy.local.errors import ClusterError
from deploy.local.layout import CHECKOUT
from deploy.local.spec import DEBIAN_SUITES, ClusterSpec
from slurm_cluster.accounts.apply import Status, apply, plan
from tests.eventually import eventually
from tests.slurm_chart.rendering import rendered
from tests.slurm_programs import on_path

pytestmark = pytest.mark.real

FILE = """\
qos:
  - {name: low, graceTime: 90}
  - name: high
    priority: 100
    flags: [DenyOnLimit, NoReserve]
    preempt: [low, normal]
    usageFactor: 1.5
    usageThreshold: 0.25
    limitFactor: 2
    preemptMode: requeue
    preemptExemptTime: 90
    limits:
      MaxTRESRunMinsPerUser: cpu=1000
      MinPrioThresh: 7
      MaxJobsPerUser: 4
      MaxSubmitJobsPerAccount: 100
      MaxTRESPerUser: "mem=16G,gres/gpu=8"
      MaxTRESPerJob: "node=2,cpu=2048"
      MinTRESPerJob: cpu=1
      GrpTRES: cpu=64
      GrpWall: 90
      MaxWall: 2-00:00:00
accounts:
  - name: vision
    parent: research
    description: Computer Vision
    organization: The Lab
    qos: [normal, high]
    defaultQos: normal
    fairshare: 5
  - name: research
    limits: {GrpTRES: "mem=1T,gres/gpu=32", MaxJobs: 50, GrpSubmitJobs: 200, MaxWall: 60}
    coordinators: [bob]
  - {name: teaching}
users:
  - name: alice
    adminLevel: Operator
    accounts:
      - {name: vision, fairshare: 10, qos: [high, low], defaultQos: low, limits: {MaxTRESPerJob: cpu=4}}
      - {name: research, partition: main}
  - name: bob
    defaultAccount: teaching
    accounts: [{name: research, fairshare: parent, priority: 3}, {name: teaching}]
"""


@pytest.fixture(scope="module", params=list(DEBIAN_SUITES))
def slurm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    spec = ClusterSpec(nodes=1, kubernetes=False, extender=False, accounting=True, release=request.param)
    with (
        Cluster.up(spec, tmp_path_factory.mktemp("slurm")) as cluster,
        on_path(cluster.directory / "bin"),
    ):
        yield cluster


class Accounts:
    """A file of accounts, with the commands' results and output."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.said: list[str] = []

    def _write(self, text: str) -> None:
        self._file.write_text(text)
        self.said.clear()

    def plan(self, text: str) -> Status:
        self._write(text)
        return plan(self._file, "", 0.0, self.said.append)

    def apply(self, text: str, patience_s: float = 0.0) -> Status:
        self._write(text)
        return apply(self._file, "", patience_s, self.said.append)


@pytest.fixture
def accounts(slurm: Cluster, tmp_path: Path) -> Iterator[Accounts]:
    commands = Accounts(tmp_path / "accounts.yaml")
    yield commands
    assert commands.apply("prune: true\n", 30.0) is Status.DONE, commands.said


def run_job(slurm: Cluster, account: str) -> str:
    """Runs a job of bob in an account, and returns the job's id. Submits again until slurmctld knows the
    account: after an outage of slurmdbd, slurmctld learns new accounts only when slurmdbd is connected
    again."""
    command = ("sbatch", "--parsable", f"--account={account}")

    def submitted() -> str:
        with suppress(ClusterError):
            return slurm.run_slurm(*command, user="bob", stdin="#!/bin/sh\nsleep 60\n").stdout.strip()
        return ""

    job = eventually(submitted, within_s=60)
    jobs = ("squeue", "--noheader", "--format=%T")
    eventually(lambda: "RUNNING" in slurm.run_slurm(*jobs).stdout, within_s=20)
    return job


def end_job(slurm: Cluster, job: str) -> None:
    slurm.run_slurm("scancel", job)
    eventually(lambda: not slurm.run_slurm("squeue", "--noheader").stdout, within_s=20)


def show(cluster: Cluster, *arguments: str) -> str:
    return cluster.run_slurm("sacctmgr", "-nP", "show", *arguments).stdout


def test_apply_makes_the_planned_changes_once(slurm: Cluster, accounts: Accounts) -> None:
    assert accounts.plan(FILE) is Status.DIFFERS
    planned = list(accounts.said)
    assert "+ qos high" in planned
    assert show(slurm, "qos", "format=name").split() == ["normal"]
    assert accounts.apply(FILE) is Status.DONE, accounts.said
    assert accounts.said == [*planned, "slurmdbd matches the file"]
    for _ in range(2):
        assert accounts.apply(FILE) is Status.DONE
        assert accounts.said == ["slurmdbd matches the file"]
    assert accounts.plan(FILE) is Status.DONE


def test_job_of_the_chart_applies_a_list_or_rejects_it(
    slurm: Cluster, accounts: Accounts, tmp_path: Path
) -> None:
    """The test runs the commands of the Job's containers one after the other, as the kubelet does. After
    a failed container, no other container runs."""
    chart = rendered({"accounts": yaml.safe_load(FILE)})
    job = chart.find("Job", "slurm-accounts")["spec"]
    file = tmp_path / "of-the-chart.yaml"
    file.write_text(chart.find("ConfigMap", "slurm-accounts")["data"]["accounts.yaml"])

    def run() -> int:
        pod = job["template"]["spec"]
        before = [each for each in pod["initContainers"] if each.get("restartPolicy") != "Always"]
        code = 0
        for each in (*before, *pod["containers"]):
            own = [str(file) if part.endswith("accounts.yaml") else part for part in each["command"]]
            command = [sys.executable, "-m", "slurm_cluster", *own[1:]]
            code = code or subprocess.run(command, cwd=CHECKOUT, check=False).returncode
        return code

    assert run() == 0
    assert accounts.plan(FILE) is Status.DONE, accounts.said
    file.write_text(FILE.replace("parent: research", "parent: lab"))
    (rule,) = job["podFailurePolicy"]["rules"]
    assert (rule["action"], run() in rule["onExitCodes"]["values"]) == ("FailJob", True)


def test_slurmdbd_has_the_values_of_the_file(slurm: Cluster, accounts: Accounts) -> None:
    assert accounts.apply(FILE) is Status.DONE, accounts.said
    limits = "format=priority,maxjobspu,maxtrespu,maxwall,grpwall,flags,usagefactor"
    names, shown = limits.partition("=")[2], show(slurm, "qos", "name=high", limits)
    qos = dict(zip(names.split(","), shown.strip().split("|"), strict=True))
    assert (qos["priority"], qos["maxjobspu"], qos["maxwall"]) == ("100", "4", "2-00:00:00")
    assert set(qos["maxtrespu"].split(",")) == {"gres/gpu=8", "mem=16G"}
    assert set(qos["flags"].split(",")) == {"DenyOnLimit", "NoReserve"}
    users = show(slurm, "user", "format=user,defaultaccount,admin").splitlines()
    assert set(users) >= {"alice|vision|Operator", "bob|teaching|None"}
    tree = show(slurm, "association", "format=account,user,partition,parentname,share").splitlines()
    assert set(tree) >= {
        "research|||root|1",
        "vision|||research|5",
        "vision|alice|||10",
        "research|alice|main||1",
        "research|bob|||parent",
    }
    more = "format=preemptmode,preemptexempttime,limitfactor,usagethres,minpriothres,maxtresrunminspu"
    assert show(slurm, "qos", "name=high", more).strip() == (
        "requeue|00:01:30|2.000000|0.250000|7|cpu=1000"
    )


def test_coordinators_come_from_the_file_and_from_parent_accounts(
    slurm: Cluster, accounts: Accounts
) -> None:
    def of(account: str) -> str:
        return show(
            slurm, "account", f"name={account}", "withcoordinators", "format=coordinators"
        ).strip()

    assert accounts.apply(FILE) is Status.DONE, accounts.said
    assert (of("research"), of("vision"), of("teaching")) == ("bob", "bob", "")
    slurm.run_slurm("sacctmgr", "-i", "add", "coordinator", "accounts=teaching", "names=alice")
    assert accounts.plan(FILE) is Status.DIFFERS
    assert accounts.said == ["- coordinator alice of account teaching"]
    below = FILE.replace("    coordinators: [bob]\n", "").replace(
        "    defaultQos: normal\n", "    defaultQos: normal\n    coordinators: [alice]\n"
    )
    assert accounts.apply(below) is Status.DONE, accounts.said
    assert (of("research"), of("vision"), of("teaching")) == ("", "alice", "")
    assert accounts.plan(below) is Status.DONE


def test_a_limit_of_minus_one_removes_the_limit(slurm: Cluster, accounts: Accounts) -> None:
    assert accounts.apply(FILE) is Status.DONE, accounts.said
    fewer = FILE.replace("MaxJobs: 50", "MaxJobs: -1").replace("gres/gpu=32", "gres/gpu=-1")
    assert accounts.apply(fewer) is Status.DONE, accounts.said
    assert accounts.plan(fewer) is Status.DONE, accounts.said
    limits = show(slurm, "association", "account=research", "format=maxjobs,grptres")
    assert limits.split() == ["|mem=1T", "|", "|"]


def test_a_refused_change_is_reported_and_other_changes_are_made(
    slurm: Cluster, accounts: Accounts
) -> None:
    """An account with a running job cannot be removed."""
    assert accounts.apply(FILE) is Status.DONE, accounts.said
    job = run_job(slurm, "teaching")
    pruned = "prune: true\nqos: [{name: late}]\n"
    assert accounts.apply(pruned) is Status.DIFFERS
    assert any(line.endswith("failed: - user bob") for line in accounts.said), accounts.said
    assert "late" in show(slurm, "qos", "format=name").split()
    end_job(slurm, job)


def test_a_change_made_by_hand_is_shown_and_reverted(slurm: Cluster, accounts: Accounts) -> None:
    assert accounts.apply(FILE) is Status.DONE
    slurm.run_slurm("sacctmgr", "-i", "modify", "qos", "high", "set", "MaxJobsPerUser=9", "GrpJobs=3")
    slurm.run_slurm(
        "sacctmgr", "-i", "modify", "account", "teaching", "set", "fairshare=7", "parent=vision"
    )
    assert accounts.plan(FILE) is Status.DIFFERS
    assert accounts.said == [
        "~ qos high",
        "    GrpJobs: 3 -> not set",
        "    MaxJobsPerUser: 9 -> 4",
        "~ account teaching",
        "    Fairshare: 7 -> 1",
        "    Parent: vision -> root",
    ]
    assert accounts.apply(FILE) is Status.DONE
    assert accounts.plan(FILE) is Status.DONE


def test_every_field_can_be_removed(accounts: Accounts) -> None:
    assert accounts.apply(FILE) is Status.DONE
    fewer = FILE.replace("[DenyOnLimit, NoReserve]", "[NoReserve]").replace("mem=16G,", "")
    assert accounts.apply(fewer) is Status.DONE, accounts.said
    assert accounts.plan(fewer) is Status.DONE, accounts.said
    bare = (
        "qos: [{name: low}, {name: high}]\n"
        "accounts: [{name: vision, parent: research}, {name: research}, {name: teaching}]\n"
        "users:\n"
        "  - {name: alice, accounts: [{name: vision}, {name: research, partition: main}]}\n"
        "  - {name: bob, accounts: [{name: research}, {name: teaching}]}\n"
    )
    assert accounts.apply(bare) is Status.DONE, accounts.said
    assert accounts.plan(bare) is Status.DONE, accounts.said


def test_objects_outside_the_file_stay_without_prune(slurm: Cluster, accounts: Accounts) -> None:
    assert accounts.apply(FILE) is Status.DONE
    less = "accounts: [{name: teaching}]\nusers: [{name: bob, accounts: [{name: teaching}]}]\n"
    assert accounts.apply(less) is Status.DONE
    (_, left) = accounts.said
    assert left.startswith("not in the file, left unchanged: ")
    assert "account vision" in left
    assert "alice" in show(slurm, "user", "format=user")
    assert accounts.apply(f"prune: true\n{less}") is Status.DONE, accounts.said
    assert show(slurm, "qos", "format=name").split() == ["normal"]
    tree = show(slurm, "association", "format=account").split()
    assert set(tree) == {"root", "teaching"}
    assert set(show(slurm, "user", "format=user").split()) == {"root", "bob"}


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("qos: [high, low]", "qos: [hihg, low]", "may use the QOS hihg, which does not exist"),
        ("parent: research", "parent: lab", "has the parent lab, which does not exist"),
        ("MaxJobsPerUser", "MaxJobs", "MaxJobs is not a limit here"),
        ("DenyOnLimit", "DenyLimits", "must be DenyOnLimit"),
    ],
)
def test_a_wrong_list_is_refused_before_anything_changes(
    slurm: Cluster, accounts: Accounts, before: str, after: str, words: str
) -> None:
    all_of_it = [show(slurm, what) for what in ("qos", "association", "user")]
    assert accounts.apply(FILE.replace(before, after)) is Status.WRONG
    assert any(words in line for line in accounts.said)
    assert accounts.said[-1] == "nothing was changed"
    assert [show(slurm, what) for what in ("qos", "association", "user")] == all_of_it


@pytest.mark.parametrize("component", ["slurmdbd", "mariadbd"])
def test_plan_waits_for_a_missing_database(slurm: Cluster, accounts: Accounts, component: str) -> None:
    slurm.stop(component)  # not by SIGKILL: this MariaDB does not flush, so a kill would lose data
    assert accounts.apply(FILE, 0.0) is Status.AWAY
    assert accounts.said[-1].startswith("slurmdbd does not answer: ")
    back = threading.Timer(5.0, lambda: slurm.start(component))
    back.start()
    try:
        assert accounts.apply(FILE, 60.0) is Status.DONE, accounts.said
    finally:
        back.join()
    assert any(
        "s): " in line and line.startswith("slurmdbd does not answer (") for line in accounts.said
    )
    assert accounts.plan(FILE) is Status.DONE


def test_a_user_may_run_a_job_in_an_account_of_the_file(slurm: Cluster, accounts: Accounts) -> None:
    assert accounts.apply(FILE) is Status.DONE
    job = run_job(slurm, "research")
    end_job(slurm, job)
