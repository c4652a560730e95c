"""Tests of `slurm-cluster configure` beside a real slurmctld with running jobs: valid configurations are
applied, wrong configurations are refused, and no job is lost."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from deploy.local.cluster import Cluster
from deploy.local.layout import CHECKOUT
from deploy.local.processes.ports import lease_ports
from deploy.local.spec import DEBIAN_SUITES, ClusterSpec
from deploy.local.users import SLURM_UID
from slurm_cluster import jwks
from slurm_cluster.configuration import folders
from slurm_cluster.configuration.configurer import Configurer, Outcome, Places, Verdict
from slurm_cluster.configuration.controller import Controller
from slurm_cluster.configuration.folders import File
from slurm_cluster.jwks import SLURM_JWKS, SLURM_KEY, Key
from tests.eventually import eventually
from tests.slurm_cluster.kubelet import RESTART_S, kubelet
from tests.slurm_programs import on_path, put_scontrol, put_slurmctld, tree_of

pytestmark = pytest.mark.real

WITHIN_S = 30.0
BATCH = "PartitionName=batch Nodes=node-1 MaxTime=INFINITE State=UP\n"
BLIND = '#!/bin/sh\necho "slurmctld: Running as primary controller" >&2\nexec sleep 60\n'
"""A program in place of slurmctld that always reports success, so that the trial of a configuration
finds no problem."""


@dataclass(frozen=True)
class Bench:
    """A Slurm, with its programs on the PATH and the sidecar's folders."""

    cluster: Cluster
    places: Places
    programs: Path
    conf: str
    """The first slurm.conf."""

    def configurer(self) -> Configurer:
        return Configurer(self.places, Controller(WITHIN_S))

    def want(self, conf: str, **others: bytes) -> None:
        """Writes the configuration that the configurer shall apply. Files that are not given keep their
        running content."""
        files = {**self.others(), "slurm.conf": conf.encode(), **others}
        folders.write(self.places.wanted, {name: File(content) for name, content in files.items()})

    def others(self) -> Mapping[str, bytes]:
        running = self.places.running
        return {name: (running / name).read_bytes() for name in ("gres.conf", "cgroup.conf")}

    def look(self) -> Outcome:
        return self.configurer().look(0.0, waited=False)

    def submit(self, *options: str) -> str:
        script = "#!/bin/sh\nsleep 600\n"
        said = self.cluster.run_slurm("sbatch", "--parsable", "--mem=10", *options, stdin=script).stdout
        job = said.strip()
        eventually(lambda: self.state_of(job) == "RUNNING", within_s=20)
        return job

    def state_of(self, job: str) -> str:
        return self.cluster.run_slurm(
            "squeue", "--noheader", f"--jobs={job}", "--format=%T"
        ).stdout.strip()

    def partitions(self) -> dict[str, str]:
        shown = self.cluster.run_slurm("sinfo", "--all", "--noheader", "--format=%P %a").stdout
        return dict(line.split() for line in shown.splitlines())

    def shows(self, key: str) -> str:
        lines = self.cluster.run_slurm("scontrol", "show", "config").stdout.splitlines()
        return next(
            line.partition("=")[2].strip() for line in lines if line.split("=")[0].strip() == key
        )

    def running(self) -> str:
        return (self.places.running / "slurm.conf").read_text()


@pytest.fixture(scope="module", params=list(DEBIAN_SUITES))
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    spec = ClusterSpec(nodes=2, kubernetes=False, extender=False, release=request.param)
    folder = tmp_path_factory.mktemp("slurm")
    with Cluster.up(spec, folder / "cluster") as cluster:
        programs, running = folder / "programs", cluster.directory / "slurm/etc"
        put_slurmctld(programs, tree_of(request.param), running)
        put_scontrol(programs, cluster)
        state = cluster.directory / "slurm/var/state"
        places = Places(folder / "wanted", running, folder / "kept", (), state)
        conf = (running / "slurm.conf").read_text()
        conf = conf.replace("localhost(127", f"{socket.gethostname()}(127")
        bench = Bench(cluster, places, programs, conf)
        with on_path(programs, cluster.directory / "bin"):
            bench.want(conf)
            assert bench.configurer().begin().verdict is Verdict.APPLIED
            cluster.run_slurm("scontrol", "reconfigure")
            eventually(lambda: Controller(WITHIN_S).serves(), within_s=20)
            yield bench


@pytest.fixture
def bench(shared: Bench) -> Iterator[Bench]:
    """A slurmctld with the first configuration and without jobs. The fixture restores this state after
    the test."""
    yield shared
    cluster = shared.cluster
    with kubelet(cluster):  # a failed test may have left no slurmctld
        shared.want(shared.conf)
        eventually(lambda: shared.look().verdict is Verdict.CURRENT, within_s=60.0)
        eventually(lambda: Controller(WITHIN_S).serves(), within_s=WITHIN_S)
    cluster.run_slurm("scancel", "--user=root")
    eventually(lambda: not cluster.run_slurm("squeue", "--noheader").stdout, within_s=20)


@pytest.fixture
def port() -> Iterator[int]:
    """Leases another port for slurmctld. No other cluster gets the port until the fixture `bench` has
    given slurmctld its first port again."""
    with closing(lease_ports(["one more"])) as lease:
        yield lease.ports["one more"]


def test_a_change_by_reconfiguration_is_applied_and_jobs_keep_running(bench: Bench) -> None:
    job, pid = bench.submit(), bench.cluster.pid("slurmctld")
    bench.want(bench.conf.replace("KillWait=40", "KillWait=41") + BATCH)
    outcome = bench.look()
    assert outcome.verdict is Verdict.APPLIED
    assert "KillWait: 40 -> 41" in outcome.words
    assert "partition batch: is new" in outcome.words
    assert bench.shows("KillWait") == "41 sec"
    assert (bench.state_of(job), bench.cluster.pid("slurmctld")) == ("RUNNING", pid)
    assert outcome.unserved_s < WITHIN_S
    assert bench.look().verdict is Verdict.CURRENT


@pytest.mark.timeout(120 + RESTART_S)
def test_a_new_port_is_applied_by_a_restart_and_jobs_keep_running(port: int, bench: Bench) -> None:
    job, pid = bench.submit(), bench.cluster.pid("slurmctld")
    old = bench.cluster.ports["slurmctld"]
    bench.want(bench.conf.replace(f"SlurmctldPort={old}", f"SlurmctldPort={port}"))
    with kubelet(bench.cluster):
        outcome = bench.look()
    assert outcome.verdict is Verdict.APPLIED, outcome.words
    assert "a restart of slurmctld" in outcome.words
    assert bench.shows("SlurmctldPort") == str(port)
    assert bench.state_of(job) == "RUNNING"
    assert bench.cluster.pid("slurmctld") != pid


@pytest.mark.timeout(120 + 2 * RESTART_S)
def test_a_new_order_of_devices_is_applied_without_reconfiguration(bench: Bench) -> None:
    """While slurmd reconfigures, slurmd executes its own program again with SLURMD_RECONF. So a slurmd
    without this variable has not reconfigured."""
    job, pid, before = bench.submit(), bench.cluster.pid("slurmctld"), bench.others()["gres.conf"]
    bench.cluster.restart("slurmd-node-1")
    environment = Path(f"/proc/{bench.cluster.pid('slurmd-node-1')}/environ")
    bench.want(bench.conf, **{"gres.conf": before + b"# in another order\n"})
    with kubelet(bench.cluster):
        outcome = bench.look()
        assert outcome.verdict is Verdict.APPLIED, outcome.words
        assert bench.cluster.pid("slurmctld") != pid
        assert bench.look().verdict is Verdict.CURRENT
        assert b"SLURMD_RECONF" not in environment.read_bytes()
        assert bench.state_of(job) == "RUNNING"
        bench.want(bench.conf, **{"gres.conf": before})
        assert bench.look().verdict is Verdict.APPLIED


def test_a_wrong_configuration_leaves_everything_as_it_is(bench: Bench) -> None:
    job, pid, started = bench.submit(), bench.cluster.pid("slurmctld"), bench.shows("BOOT_TIME")
    bench.want(bench.conf.replace("KillWait=40", "KilWait=40"))
    outcome = bench.look()
    assert outcome.verdict is Verdict.REFUSED
    assert "KilWait" in outcome.words
    assert (bench.running(), bench.shows("BOOT_TIME")) == (bench.conf, started)
    assert (bench.state_of(job), bench.cluster.pid("slurmctld")) == ("RUNNING", pid)


@pytest.mark.one_release("The configurer alone decides when to try again")
def test_a_refused_configuration_is_retried_later_or_at_once_after_a_change(bench: Bench) -> None:
    looks = bench.configurer()
    bench.want(bench.conf + "Include later.conf\n")
    assert looks.look(0.0, waited=False).verdict is Verdict.REFUSED
    with on_path(Path("/nowhere")):
        first = looks.look(1.0, waited=False)
    assert first is looks.look(2.0, waited=False)
    bench.want(bench.conf)
    assert looks.look(3.0, waited=False).verdict is Verdict.CURRENT


class OwningController(Controller):
    """Makes slurmctld's user the owner of the keys before a reconfiguration. In slurmctld's Pod, the
    files always belong to this user."""

    def __init__(self, etc: Path) -> None:
        super().__init__(WITHIN_S)
        self._etc = etc

    def reconfigure(self) -> float:
        for name in (SLURM_KEY, SLURM_JWKS):
            os.chown(self._etc / name, SLURM_UID, SLURM_UID)
        return super().reconfigure()


def test_a_key_rotation_is_applied_in_steps_and_jobs_keep_running(bench: Bench, tmp_path: Path) -> None:
    job = bench.submit()
    keys: jwks.Keys = (Key("first", (bench.places.running / SLURM_KEY).read_bytes(), signs=True),)
    secret = tmp_path / "secret"
    secret.mkdir()
    configurer = Configurer(
        replace(bench.places, keys=(secret,)), OwningController(bench.places.running)
    )
    for step in rotation(keys):
        files = {SLURM_JWKS: jwks.render(step), SLURM_KEY: jwks.signing(step).value}
        folders.write(secret, {name: File(content, secret=True) for name, content in files.items()})
        outcome = configurer.look(0.0, waited=False)
        assert outcome.verdict is Verdict.APPLIED, outcome.words
        assert (bench.places.running / SLURM_JWKS).read_bytes() == files[SLURM_JWKS]
        assert bench.state_of(job) == "RUNNING"
    assert [key.id for key in step] == ["second"]


def rotation(keys: jwks.Keys) -> Iterator[jwks.Keys]:
    """Yields the first keys, and then the keys after each step of a rotation."""
    yield keys
    for _ in jwks.Stage:
        keys = jwks.rotated(keys, Key("second", b"n" * 64))
        yield keys


@pytest.mark.one_release("The configurer alone compares partitions with jobs")
def test_jobs_delay_a_change_that_would_end_them(bench: Bench) -> None:
    bench.want(bench.conf + BATCH)
    assert bench.look().verdict is Verdict.APPLIED
    job = bench.submit("--partition=batch")
    bench.want(bench.conf)
    outcome = bench.look()
    assert (outcome.verdict, f"would end jobs: {job}" in outcome.words) == (Verdict.HELD, True)
    assert bench.running() == bench.conf + BATCH
    bench.cluster.run_slurm("scancel", job)
    eventually(lambda: not bench.state_of(job), within_s=20)
    assert bench.look().verdict is Verdict.APPLIED
    assert bench.running() == bench.conf


def test_partitions_set_by_scontrol_stay_until_their_jobs_end(bench: Bench) -> None:
    slurm = bench.cluster.run_slurm
    slurm("scontrol", "create", "PartitionName=live", "Nodes=node-2", "State=UP", "MaxTime=INFINITE")
    slurm("scontrol", "update", "PartitionName=main", "State=DRAIN")
    job = bench.submit("--partition=live")
    bench.want(bench.conf + "ReconfigFlags=KeepPartInfo\n")
    assert bench.look().verdict is Verdict.APPLIED
    bench.want(bench.conf)
    outcome = bench.look()
    assert (outcome.verdict, f"would end jobs: {job}" in outcome.words) == (Verdict.HELD, True)
    assert (bench.partitions(), bench.state_of(job)) == ({"main*": "drain", "live": "up"}, "RUNNING")
    slurm("scancel", job)
    eventually(lambda: not bench.state_of(job), within_s=20)
    outcome = bench.look()
    assert outcome.verdict is Verdict.APPLIED
    assert "partition main: state DRAIN by scontrol -> UP" in outcome.words
    assert bench.partitions() == {"main*": "up"}


@pytest.mark.one_release("The configurer alone compares the files")
def test_a_change_that_would_lose_all_jobs_is_refused(bench: Bench) -> None:
    bench.want(
        bench.conf.replace("StateSaveLocation=/var/lib/slurm/state", "StateSaveLocation=/tmp/state")
    )
    outcome = bench.look()
    assert outcome.verdict is Verdict.REFUSED
    assert "all jobs would be lost" in outcome.words
    assert bench.running() == bench.conf


@pytest.mark.one_release("The configurer alone decides when to place the files again")
def test_files_are_restored_if_slurmctld_ends_at_a_reconfiguration(bench: Bench, tmp_path: Path) -> None:
    """A blind trial accepts files with which slurmctld cannot start. The configurer must then restore
    the last valid files."""
    job = bench.submit()
    blind = tmp_path / "blind"
    blind.mkdir()
    (blind / "slurmctld").write_text(BLIND)
    (blind / "slurmctld").chmod(0o755)
    bench.want(bench.conf + "PriorityType=priority/mine\n")
    configurer = Configurer(bench.places, Controller(5.0))
    with on_path(blind), kubelet(bench.cluster):
        outcome = configurer.look(0.0, waited=False)
        eventually(lambda: Controller(WITHIN_S).serves(), within_s=WITHIN_S)
    assert outcome.verdict is Verdict.REFUSED
    assert "did not serve within 5 s: the previous configuration is restored" in outcome.words
    assert bench.running() == bench.conf
    assert bench.state_of(job) == "RUNNING"


def test_a_start_with_a_wrong_configuration_uses_the_last_valid_one(bench: Bench) -> None:
    bench.want("NoSuchKey=1\n")
    (bench.places.running / "slurm.conf").unlink()
    try:
        begun = bench.configurer().begin()
    finally:
        (bench.places.running / "slurm.conf").write_text(bench.conf)
    assert begun == Outcome(Verdict.CURRENT, "slurmctld starts with the last valid configuration")


def command(bench: Bench, *more: str) -> list[str]:
    places = bench.places
    folders_of = (
        f"--wanted={places.wanted}",
        f"--running={places.running}",
        f"--kept={places.kept}",
        f"--state={places.state}",
    )
    return [sys.executable, "-m", "slurm_cluster", "configure", *folders_of, *more]


@pytest.mark.one_release("The configurer alone compares the files")
def test_the_plan_is_printed_and_nothing_changes(bench: Bench) -> None:
    def plan() -> tuple[int, list[str]]:
        done = subprocess.run(
            command(bench, "--plan"), cwd=CHECKOUT, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout.splitlines()

    assert plan() == (0, ["nothing changes"])
    bench.want(bench.conf.replace("KillWait=40", "KillWait=41"))
    assert plan() == (0, ["KillWait: 40 -> 41", "needs: scontrol reconfigure"])
    bench.want(bench.conf.replace("KillWait=40", "KilWait=41"))
    status, lines = plan()
    assert status == 1
    assert all(line.startswith("refused: ") for line in lines)
    assert bench.running() == bench.conf


def fetch(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""


@pytest.mark.one_release("slurmctld's answers are those of the tests above")
def test_sidecar_reports_and_ends_with_its_pod(port: int, bench: Bench, tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as log:
        sidecar = subprocess.Popen(command(bench, f"--port={port}"), cwd=CHECKOUT, stderr=log)
    try:
        eventually(lambda: fetch(port, "/readyz")[0] == 200, within_s=30.0)
        eventually(
            lambda: "slurm_cluster_configuration_current 1.0" in fetch(port, "/metrics")[1], within_s=20
        )
        bench.want(bench.conf.replace("KillWait=40", "KilWait=41"))
        eventually(
            lambda: "slurm_cluster_configuration_current 0.0" in fetch(port, "/metrics")[1], within_s=20
        )
        assert json.loads(fetch(port, "/readyz")[1]) == {"ready": True, "problems": ["configuration"]}
        bench.want(bench.conf.replace("KillWait=40", "KillWait=41"))
        eventually(lambda: 'verdict="Applied"' in fetch(port, "/metrics")[1], within_s=30.0)
        assert bench.shows("KillWait") == "41 sec"
    finally:
        sidecar.send_signal(signal.SIGTERM)
        assert sidecar.wait(15) == 0
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    told = [line["verdict"] for line in lines if line["event"] == "configuration"]
    assert told == ["Refused", "Applied"]
    assert [line["lines"][0] for line in lines if line["event"] == "plan"] == ["KillWait: 40 -> 41"]
