"""Tests of two real slurmctlds with one state. The standby slurmctld gets the same configuration as the
serving slurmctld, and takes over with this configuration. No job is lost, no matter which slurmctld is
killed."""

import asyncio
import re
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from deploy.local.cluster import Cluster
from deploy.local.errors import ClusterError
from deploy.local.layout import Layout
from deploy.local.spec import DEBIAN_SUITES, ClusterSpec
from slurm_client.rest.client import SlurmRest
from slurm_cluster.configuration import folders
from slurm_cluster.configuration.configurer import Configurer, Outcome, Places, Verdict
from slurm_cluster.configuration.controller import Controller
from slurm_cluster.configuration.folders import File, Kept
from tests.eventually import eventually
from tests.slurm_cluster.kubelet import RESTART_S, kubelet
from tests.slurm_cluster.standby import ADDRESS, HOST, Standby
from tests.slurm_programs import on_path, put_scontrol, put_slurmctld, tree_of

pytestmark = [pytest.mark.real, pytest.mark.timeout(300 + RESTART_S)]
WITHIN_S = 60.0
NEW = "PartitionName=new Nodes=node-2 MaxTime=INFINITE State=UP\n"
SLURM_CONF = (
    f"SlurmctldHost={socket.gethostname()}(127.0.0.1)",
    f"SlurmctldHost={HOST}({ADDRESS})",
    "SlurmctldTimeout=10",
)


@dataclass
class Two:
    """Both slurmctlds, each with its configurer."""

    cluster: Cluster
    second: Standby
    wanted: Path
    conf: str
    looks: tuple[Configurer, Configurer]

    @property
    def kept(self) -> Path:
        """The last valid configuration."""
        return self.wanted.parent / "kept/good"

    def want(self, conf: str) -> None:
        folders.write(self.wanted, {"slurm.conf": File(conf.encode())})

    def of_first(self, act: Callable[[Configurer], Outcome]) -> Outcome:
        return act(self.looks[0])

    def of_second(self, act: Callable[[Configurer], Outcome]) -> Outcome:
        with self.second.host():
            return act(self.looks[1])

    def submit(self, *options: str) -> str:
        script = "#!/bin/sh\nsleep 600\n"
        said = self.cluster.run_slurm("sbatch", "--parsable", "--mem=10", *options, stdin=script).stdout
        eventually(lambda: self.states(said.strip()) == "RUNNING", within_s=20)
        return said.strip()

    def states(self, jobs: str) -> str:
        """Returns the states of jobs, as reported on the second host."""
        return self.second.ask("squeue", "--noheader", f"--jobs={jobs}", "--format=%T").strip()

    def run(self, *jobs: str) -> None:
        """Waits until the jobs run."""
        shown = partial(self.states, ",".join(jobs))
        eventually(shown, within_s=20, holds=lambda states: states.split() == ["RUNNING"] * len(jobs))

    def start_first(self) -> None:
        """Starts the first slurmctld as the chart does: without -i, and again after each failed start. A
        start of 26.05 may fail: slurmctld waits 29 s until the second slurmctld has saved the state, and
        reads the state while the second slurmctld still renames files."""
        alone = ["chroot", str(Layout(self.cluster.directory).root), "/usr/sbin/slurmctld", "-D"]

        def starts() -> bool:
            with suppress(ClusterError):
                self.cluster.start("slurmctld", argv=alone)
                return True
            return False

        eventually(starts, within_s=90.0)

    def first_leads(self) -> bool:
        """Returns True if the first slurmctld leads. Reads the leader as slurm-extender-gate does."""
        assert "SlurmctldHost[1] " in self.second.ask("scontrol", "show", "config")
        ping = self.second.ask("scontrol", "ping")
        (first,) = re.findall(r"Slurmctld\(primary\)[^\n]* is (UP|DOWN)", ping)
        return bool(first == "UP")

    def started(self) -> int:
        """Returns slurmctld's start time. Reads the time as the extender does."""

        async def read() -> int | None:
            slurm = SlurmRest(self.cluster.slurmrestd_url, self.cluster.token_file)
            try:
                return (await slurm.configuration()).boot_time
            finally:
                await slurm.aclose()

        told = asyncio.run(read())
        assert told is not None
        return told

    def kill_wait(self) -> str:
        shown = self.second.ask("scontrol", "show", "config").splitlines()
        return next((line.split("=")[1].strip() for line in shown if "KillWait" in line), "")


def look(configurer: Configurer) -> Outcome:
    return configurer.look(0.0, waited=False)


def begin(configurer: Configurer) -> Outcome:
    return configurer.begin()


@pytest.fixture(params=list(DEBIAN_SUITES))
def two(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Two]:
    spec = ClusterSpec(
        nodes=2, kubernetes=False, extender=False, release=request.param, slurm_conf=SLURM_CONF
    )
    with Cluster.up(spec, tmp_path / "slurm") as cluster, second_of(cluster, tmp_path) as second:
        programs = tmp_path / "programs"
        put_slurmctld(programs, tree_of(request.param), cluster.directory / "slurm/etc")
        put_scontrol(programs, cluster)
        etc = cluster.directory / "slurm/etc"
        conf = (etc / "slurm.conf").read_text()
        state, wanted, kept = cluster.directory / "slurm/var/state", tmp_path / "want", tmp_path / "kept"
        places = [Places(wanted, running, kept, (), state) for running in (etc, second.etc)]
        first, other = (Configurer(each, Controller(WITHIN_S)) for each in places)
        folders.write(
            wanted, {name: File((etc / name).read_bytes()) for name in ("gres.conf", "cgroup.conf")}
        )
        made = Two(cluster, second, wanted, conf, (first, other))
        made.want(conf)
        with on_path(programs, cluster.directory / "bin"):
            assert made.of_first(begin).verdict is Verdict.APPLIED
            assert made.of_second(begin).verdict is Verdict.CURRENT
            with second.runs():
                eventually(lambda: "background mode" in second.said(), within_s=WITHIN_S)
                yield made


@contextmanager
def second_of(cluster: Cluster, tmp_path: Path) -> Iterator[Standby]:
    hosts = cluster.directory / "slurm/hosts"
    with hosts.open("a") as more:  # appends, because a new file would not be visible through the mount
        more.write(f"{ADDRESS} {HOST}\n")
    (tmp_path / "second").mkdir()
    second = Standby(cluster, tree_of(cluster.spec.release), tmp_path / "second")
    for key in ("slurm.key", "jwt_hs256.key"):
        of_first = cluster.directory / "slurm/etc" / key
        shutil.copy2(of_first, second.etc)
        shutil.chown(second.etc / key, of_first.stat().st_uid)
    try:
        yield second
    finally:
        second.close()


def test_a_standby_slurmctld_takes_over_with_the_same_configuration(two: Two) -> None:
    started = two.second.said().count("background mode")
    old = two.submit()
    two.want(two.conf + NEW)
    assert two.of_first(look).verdict is Verdict.APPLIED
    outcome = two.of_second(look)
    assert (outcome.verdict, "on standby" in outcome.words) == (Verdict.APPLIED, True), outcome
    assert two.second.said().count("background mode") == started + 1
    assert {two.of_first(look).verdict, two.of_second(look).verdict} == {Verdict.CURRENT}
    new = two.submit("--partition=new")
    Controller(WITHIN_S).reconfigure()  # saves all state; a kill would lose up to 5 s of unsaved state
    eventually(lambda: two.started() < int(time.time()), "slurmctld started a second ago")
    killed = int(time.time())
    two.cluster.kill("slurmctld")
    eventually(lambda: "Running as primary controller" in two.second.said(), within_s=90.0)
    two.run(old, new)
    assert not two.first_leads()
    assert two.started() >= killed
    # While the second slurmctld leads, the configurer of the second slurmctld applies a change. The
    # first slurmctld then starts again with this change.
    two.want(two.conf.replace("KillWait=40", "KillWait=41") + NEW)
    outcome = two.of_second(look)
    assert outcome.verdict is Verdict.APPLIED, outcome
    assert two.kill_wait() == "41 sec"
    (two.cluster.directory / "slurm/etc/slurm.conf").unlink()  # as if the Pod is recreated
    assert two.of_first(begin).verdict is Verdict.CURRENT
    two.start_first()
    eventually(lambda: two.second.said().count("background mode") == started + 2, within_s=90.0)
    assert two.kill_wait() == "41 sec"
    two.run(old, new)
    assert {two.of_first(look).verdict, two.of_second(look).verdict} == {Verdict.CURRENT}
    assert two.first_leads()


@pytest.mark.one_release("The configurer alone waits for the first slurmctld")
def test_a_second_slurmctld_waits_until_the_first_slurmctld_lists_it(two: Two) -> None:
    """The first slurmctld runs with the slurm.conf of `slurmctld.replicas: 1`, and the second slurmctld
    starts with the slurm.conf for two."""
    alone = "".join(line for line in two.conf.splitlines(keepends=True) if f"={HOST}(" not in line)
    files = folders.read(two.kept)
    Kept(two.kept.parent).keep({**files, "slurm.conf": File(alone.encode())})
    (two.second.etc / "slurm.conf").unlink()
    begun = two.of_second(begin)
    words = "slurmctld starts with the wanted configuration"
    assert (begun.verdict, begun.words) == (Verdict.APPLIED, words)
    assert (two.kept / "slurm.conf").read_text() == alone
    assert two.of_second(look).words == "the serving slurmctld does not list this slurmctld yet"
    with kubelet(two.cluster):
        outcome = two.of_first(look)
    assert "SlurmctldHost: " in outcome.words
    assert outcome.verdict is Verdict.APPLIED, outcome
    assert two.of_second(look).verdict is Verdict.CURRENT


def test_a_restart_ends_one_slurmctld_at_a_time(two: Two) -> None:
    job, started = two.submit(), two.second.said().count("background mode")
    two.want(two.conf.replace(f"({ADDRESS})", f"({HOST})"))
    with kubelet(two.cluster):
        outcome = two.of_first(look)
    assert "a restart of slurmctld" in outcome.words
    assert outcome.verdict is Verdict.APPLIED, outcome
    assert two.second.said().count("background mode") == started
    assert two.of_second(look).verdict is Verdict.APPLIED
    assert two.second.said().count("background mode") == started + 1
    assert two.states(job) == "RUNNING"
