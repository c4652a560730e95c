"""Tests of the guest (a virtual machine) without starting the guest. The tests cover the guest's
description, and the host's way to run programs in the guest."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
import tarfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from deploy.local.blueprint import port_names
from deploy.local.errors import ClusterError
from deploy.local.guest import oci
from deploy.local.guest.connection import Connection
from deploy.local.guest.inside import runner
from deploy.local.guest.nodes import GPUS
from deploy.local.layout import CHECKOUT
from deploy.local.rendering import render
from deploy.local.spec import ClusterSpec, SpecError
from tests.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

INSIDE = Path(runner.__file__).parent


def slurm_conf(spec: ClusterSpec) -> list[str]:
    ports = {name: 20_000 + index for index, name in enumerate(port_names(spec))}
    return render("slurm.conf.j2", spec=spec, ports=ports).splitlines()


def test_the_guest_may_be_the_only_node() -> None:
    conf = slurm_conf(ClusterSpec(nodes=0, guest=True))
    (node,) = [line for line in conf if line.startswith("NodeName=")]
    assert node.startswith("NodeName=guest ")
    assert node.endswith("CPUs=4 Sockets=1 CoresPerSocket=4 ThreadsPerCore=1 RealMemory=2000"
                         " Gres=gpu:h100:8 State=UNKNOWN")  # fmt: skip
    assert "PartitionName=main Nodes=guest Default=YES MaxTime=INFINITE State=UP PreemptMode=OFF" in conf


def test_the_guest_is_a_node_beside_others() -> None:
    conf = slurm_conf(ClusterSpec(nodes=2, guest=True, external_nodes=1))
    partitions = [line.split()[1] for line in conf if line.startswith("PartitionName=")]
    assert partitions == ["Nodes=node-[1-2],guest", "Default=NO"]


def test_cluster_without_a_guest_has_no_guest_settings() -> None:
    assert "guest" not in "\n".join(slurm_conf(ClusterSpec()))
    assert not {"guest", "slurmd-guest", "kubelet"} & set(port_names(ClusterSpec()))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"kubernetes": False, "extender": False}, "node of both systems"),
        ({"kubernetes_release": "1.31"}, r"of Kubernetes 1\.37"),
        ({"gate": True}, "gate=False"),
        ({"guest_in_pool": True, "pools": "{}"}, "nodes=0"),
        ({"guest_in_pool": True, "nodes": 0}, "give pools"),
        ({"in_pods": True, "own_scheduler": True}, "extender=False"),
        ({"in_pods": True, "extender": False}, "own_scheduler"),
        ({"services": True}, "give in_pods"),
        ({"slurm": False}, "give services"),
    ],
)
def test_impossible_guest_is_refused_with_the_fix(given: dict[str, object], words: str) -> None:
    with pytest.raises(SpecError, match=words):
        ClusterSpec(guest=True, **given)  # type: ignore[arg-type]


def test_init_makes_as_many_devices_as_slurm_counts() -> None:
    assert f"for index in {' '.join(file[-1] for file in GPUS)}; do" in (INSIDE / "prepare").read_text()


def test_image_archive_is_the_same_each_time(tmp_path: Path) -> None:
    busybox = tmp_path / "busybox"
    busybox.write_bytes(b"program")
    archives = [tmp_path / "1.tar", tmp_path / "2.tar"]
    for archive in archives:
        oci.write_images(archive, busybox, ["busybox", "sh"])
    first, second = (archive.read_bytes() for archive in archives)
    assert first == second
    with tarfile.open(fileobj=io.BytesIO(first)) as images:
        names = images.getnames()
    assert len([name for name in names if name.endswith(".json")]) == 4
    assert len([name for name in names if name.endswith(".tar")]) == 2


@pytest.fixture
def port() -> Iterator[int]:
    """The port of a runner. Here, the runner runs programs on this machine instead of the guest."""
    with runner.Server(("127.0.0.1", 0), runner.Connection) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        yield server.server_address[1]
        server.shutdown()
        serving.join()


def test_command_returns_its_status_and_output(port: int) -> None:
    connection = Connection(port)
    assert connection.is_up()
    assert connection.run("echo one; echo two >&2").output == "one\ntwo\n"
    said = connection.run("echo ä; exit 3", check=False)
    assert (said.status, said.output) == (3, "ä\n")
    with pytest.raises(ClusterError, match=r"exit 3 \(3\): why"):
        connection.run("echo why; exit 3")


def test_a_command_that_takes_too_long_is_killed_with_its_children(port: int, tmp_path: Path) -> None:
    alive = tmp_path / "alive"
    with pytest.raises(ClusterError, match="timed out"):
        Connection(port).run(f"while :; do touch {alive}; sleep 0.05; done & sleep 100", within_s=0.5)
    eventually(lambda: not changes(alive), within_s=20)


def test_command_with_endless_output_times_out(port: int) -> None:
    with pytest.raises(ClusterError, match=r"still runs after 0\.3 s"):
        Connection(port).run("yes", within_s=0.3)


def test_missing_guest_is_an_error(port: int) -> None:
    with runner.Server(("127.0.0.1", 0), runner.Connection) as server:
        free = server.server_address[1]
    assert not Connection(free).is_up()
    with pytest.raises(ClusterError, match="in the guest: true: ConnectionRefusedError"):
        Connection(free).run("true")


def test_copied_files_keep_their_modes_and_bytecode_is_left_out(port: int, tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "etc/__pycache__").mkdir(parents=True)
    (source / "etc/key").write_text("secret")
    (source / "etc/key").chmod(0o600)
    Connection(port).put(source, str(tmp_path / "new/root"))
    found = tmp_path / "new/root/etc"
    assert [file.name for file in found.iterdir()] == ["key"]
    assert (found / "key").stat().st_mode & 0o777 == 0o600


def program(port: int, script: str) -> subprocess.Popen[str]:
    """Starts a program by the runner, as the cluster's supervisor starts a program in the guest."""
    argv = [sys.executable, "-m", "deploy.local.guest.program", str(port), "--", "bash", "-c", script]
    return subprocess.Popen(argv, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True)


def test_signal_to_the_local_process_reaches_the_program(port: int) -> None:
    with program(port, "trap 'echo bye; exit 7' TERM; echo up; while :; do sleep 0.05; done") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.read() == "bye\n"
    assert process.returncode == 7


def test_program_ended_by_a_signal_returns_the_status_of_a_shell(port: int) -> None:
    with program(port, "kill -9 $$") as process:
        process.wait()
    assert process.returncode == 128 + signal.SIGKILL


def test_program_dies_with_its_local_process(port: int, tmp_path: Path) -> None:
    alive = tmp_path / "alive"
    with program(port, f"while :; do touch {alive}; sleep 0.05; done") as process:
        eventually(alive.exists, within_s=20)
        process.kill()
    eventually(lambda: not changes(alive), within_s=20)


def changes(file: Path) -> bool:
    """Returns True if a program changes the file within 0.4 s. A running program of these tests changes
    the file more often."""
    before = file.stat().st_mtime_ns
    time.sleep(0.4)
    return file.stat().st_mtime_ns != before


def test_cluster_starts_no_programs_that_run_in_pods() -> None:
    spec = ClusterSpec(nodes=0, guest=True, extender=False, own_scheduler=True, in_pods=True)
    assert (spec.extender_names, spec.scheduler_names) == ([], [])
    assert spec.other_scheduler_names == ["default-scheduler"]
    assert "gateway" in port_names(spec)


def test_host_runs_no_slurm_if_slurm_runs_in_pods() -> None:
    in_pods = {"guest": True, "in_pods": True, "own_scheduler": True, "services": True}
    spec = ClusterSpec(nodes=0, extender=False, slurm=False, **in_pods)  # type: ignore[arg-type]
    assert not any(name.startswith("slurm") for name in port_names(spec) if name != "slurmd-guest")
