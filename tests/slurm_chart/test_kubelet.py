"""Tests of a whole Slurm and slurm-extender on an empty cluster that runs real containers. The first
test goes from `helm install` to a running Pod and a job in sacct. In the next tests, parts of Slurm
fail.

Each test continues from the state in which the test before left the cluster.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import trustme

from deploy.images.builder import Builder, Choice
from deploy.images.image import IMAGES, SCHEDULER
from deploy.local.cluster import Cluster
from deploy.local.processes.ports import lease_ports
from deploy.local.programs.helm_binary import helm
from deploy.local.progress import Report
from deploy.local.spec import DEFAULT_RELEASE, ClusterSpec
from tests.install.figures import seconds_since
from tests.install.images import kubernetes_version
from tests.login.client import key_pair
from tests.login.directory_server import PORTS, Person, serving
from tests.node.boot import brought_up
from tests.slurm_chart.figures import record
from tests.slurm_chart.whole_slurm import DIRECTORY, TEAMS_USER, Directory, LoggedIn, WholeSlurm

pytestmark = [pytest.mark.install, pytest.mark.timeout(1800)]
_RELEASE = os.environ.get("SLURM_RELEASE", DEFAULT_RELEASE)
_LIMIT_S = 900.0
"""Maximum time from the empty cluster until a Pod runs and sacct has a job."""
_KILLS = 5
_BY_THE_KUBELET = 2
_SAVED_S = 6.0
"""Time to wait until slurmctld has saved its state. slurmctld saves every 5 s."""
_OUTAGE_S = 60.0


@pytest.fixture(scope="module")
def carol(tmp_path_factory: pytest.TempPathFactory) -> LoggedIn:
    """A user of the directory. Her uid is a uid that the policy on the page allows."""
    key = key_pair(tmp_path_factory.mktemp("keys"), "carol")
    person = Person(name="carol", uid=TEAMS_USER, password="carol's own", key=key.public)
    return LoggedIn(person, key)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory, carol: LoggedIn) -> Iterator[Directory]:
    authority = trustme.CA()
    lease = lease_ports(PORTS)
    try:
        folder = tmp_path_factory.mktemp("slapd")
        with serving(folder, lease.ports, authority, DIRECTORY) as server:
            server.add(carol.person)
            yield Directory(lease.ports, authority)
    finally:
        lease.close()


@pytest.fixture(scope="module")
def whole(directory: Directory, report: Report) -> Iterator[WholeSlurm]:
    """A cluster without Slurm and slurm-extender, whose Node already has the images."""
    with Builder(report) as builder:
        images = [builder.built(each, Choice(slurm=_RELEASE)) for each in IMAGES]
        version = Choice(version=kubernetes_version(report))
        images.append(builder.built(SCHEDULER, version))
    spec = ClusterSpec(
        nodes=0,
        guest=True,
        guest_in_pool=True,
        guest_memory_mb=8192,
        guest_images=tuple(str(each.archive) for each in images),
        in_pods=True,
        own_scheduler=True,
        services=True,
        slurm=False,
        extender=False,
    )
    with TemporaryDirectory(prefix="install-") as folder:
        up = partial(Cluster.up, spec, Path(folder), report=report)
        with brought_up(up, report) as cluster:
            made = WholeSlurm(cluster, helm(report), directory, _RELEASE)
            made.prepare()
            yield made


@pytest.fixture
def at_ssh(whole: WholeSlurm, carol: LoggedIn, tmp_path: Path) -> Iterator[LoggedIn]:
    """carol with an ssh client that reaches the login Pod."""
    with whole.ssh(tmp_path) as client:
        yield carol.at(client)


def test_from_an_empty_cluster_to_a_pod_and_a_job_in_sacct(
    whole: WholeSlurm, carol: LoggedIn, tmp_path: Path, report: Report
) -> None:
    began = time.monotonic()
    whole.install()
    report(f"both charts are installed after {seconds_since(began)} s")
    whole.until(
        lambda: "idle" in whole.slurm("sinfo", "-hN", "-o", "%T"), "the slurmd Pod's node is idle"
    )
    report(f"there is a node after {seconds_since(began)} s")
    whole.create("beside", "sleep 100000")
    with whole.ssh(tmp_path) as client:
        user = carol.at(client)
        assert user.run("id -u").strip() == str(TEAMS_USER)
        job = user.submit("sleep 20; echo from $SLURM_JOB_NODELIST", "--output=said")
        whole.until(lambda: whole.phase("beside") == "Running", "the Pod runs")
        report(f"the Pod runs after {seconds_since(began)} s")
        whole.until(lambda: user.records().get(job) == "COMPLETED", "the job is done")
        assert set(user.records().values()) == {"COMPLETED", "RUNNING"}
        took = seconds_since(began)
        assert user.run("cat said").strip() == "from guest"
        by_password = client.by_password("carol", carol.person.password, "squeue -h -o %u,%T,%k")
    assert by_password.stdout.startswith("carol,RUNNING,"), by_password
    record(f"from_nothing_to_both_in_sacct_s_{_RELEASE}", took)
    assert took < _LIMIT_S


def test_the_charts_own_checks_pass(whole: WholeSlurm) -> None:
    assert "PASS" in whole.helm("test", "slurm", "--logs")


def test_a_slurmctld_that_is_killed_loses_no_job_and_no_pod(whole: WholeSlurm, at_ssh: LoggedIn) -> None:
    """After each of the first two kills (SIGKILL), the kubelet restarts slurmctld, the second time after
    a longer backoff. After each other kill, the test also deletes the Pod at once, as an impatient
    administrator does. The test waits until slurmctld has saved its state: test_kills.py tests jobs of
    the last 5 s."""
    uid = whole.uid("beside")
    long = at_ssh.submit("sleep 100000")
    short = []
    outages = []
    for number in range(_KILLS):
        short.append(at_ssh.submit("sleep 1"))
        whole.until(lambda: at_ssh.records().get(short[-1]) == "COMPLETED", "the short job is done")
        time.sleep(_SAVED_S)
        whole.guest.run("pkill -9 -x slurmctld")
        began = time.monotonic()
        if number >= _BY_THE_KUBELET:
            whole.delete_slurmctld()
        whole.until(lambda: "UP" in whole.slurm("scontrol", "ping"), "slurmctld is there again")
        outages.append(seconds_since(began))
    record(f"kubelet_kills_of_slurmctld_{_RELEASE}", _KILLS)
    record(f"kubelet_slurmctld_away_s_{_RELEASE}", outages)
    records = at_ssh.records()
    assert {records[job] for job in short} == {"COMPLETED"}
    assert records[long] == "RUNNING"
    assert (whole.phase("beside"), whole.uid("beside")) == ("Running", uid)
    at_ssh.run(f"scancel {long}")


def test_a_wrong_configuration_is_reported_and_never_reaches_slurmctld(whole: WholeSlurm) -> None:
    whole.upgrade(config={"slurm": {"KillWait": 43, "SelectType": "select/none"}})
    words = "MaxNodeCount only compatible with cons_tres"
    whole.until(lambda: words in whole.events("slurmctld-0"), "an Event says what is wrong")
    assert "KillWait                = 40 sec" in whole.slurm("scontrol", "show", "config")
    whole.upgrade(config={"slurm": {"KillWait": 44}})
    whole.until(
        lambda: "KillWait                = 44 sec" in whole.slurm("scontrol", "show", "config"),
        "what is right arrives",
    )


def test_jobs_come_and_go_while_the_database_is_away(whole: WholeSlurm, at_ssh: LoggedIn) -> None:
    whole.scale("statefulset/mariadb", 0)
    whole.until(lambda: not whole.is_there("mariadb-0"), "the database is away")
    began = time.monotonic()
    jobs = [at_ssh.submit("sleep 1") for _ in range(3)]
    whole.until(lambda: not at_ssh.run("squeue -h --me -t PD,R -n wrap"), "the jobs are done")
    time.sleep(max(0.0, _OUTAGE_S - (time.monotonic() - began)))
    whole.scale("statefulset/mariadb", 1)
    done = dict.fromkeys(jobs, "COMPLETED")
    whole.until(lambda: done.items() <= at_ssh.records().items(), "sacct has all of them")


def test_the_commands_of_the_page_restore_the_newest_dump(whole: WholeSlurm, at_ssh: LoggedIn) -> None:
    before = at_ssh.records()
    whole.dump()
    after = at_ssh.submit("sleep 1")
    whole.until(lambda: at_ssh.records().get(after) == "COMPLETED", "a job after the dump is done")
    whole.follow("kubectl create job -n slurm restore")
    whole.until(lambda: before.items() <= at_ssh.records().items(), "sacct has what was there")
    assert after not in at_ssh.records()


def test_the_command_of_the_page_publishes_the_keys(whole: WholeSlurm) -> None:
    whole.follow("kubectl create job -n slurm publish-secrets-now")
    whole.job_succeeds("publish-secrets-now")


def test_state_database_and_keys_survive_an_uninstall(whole: WholeSlurm, at_ssh: LoggedIn) -> None:
    """A new release continues with the state, the database and the keys of the earlier release."""
    jobs = at_ssh.records().keys()
    assert jobs
    whole.delete("beside")
    whole.until(lambda: not whole.slurm("squeue", "-h"), "no job is left")
    whole.helm("uninstall", "slurm-extender", "--wait")
    whole.helm("uninstall", "slurm", "--wait")
    whole.upgrade()
    sacct = ("sacct", "--allusers", "-X", "--noheader", "--parsable2", "--format=JobID")
    whole.until(lambda: jobs <= set(whole.slurm(*sacct).split()), "sacct has what was there")
