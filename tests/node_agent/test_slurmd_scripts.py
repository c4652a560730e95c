"""Tests of the scripts in slurmd's container. Each test has a root file system of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from node_agent.machine import slurmd_gres
from node_agent.machine.slurmd_gres import WrongGres
from node_agent.slurmd import manifest as manifest_module
from tests.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Root file system with a slurmd that prints the given options."""
    for folder in ("slurm-extender/scripts", "slurm-extender/pod", "run/slurm-extender", "bin"):
        (tmp_path / folder).mkdir(parents=True)
    program(tmp_path / "bin/slurmd", 'echo "slurmd $*"')
    return tmp_path


def program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def start(root: Path, inside: Sequence[str] = (), **environment: str) -> tuple[int, str]:
    """Runs start.sh, and returns the exit status and the output."""
    with started(root, inside, **environment) as ran:
        status = ran.wait(timeout=20)
    return status, (root / "output").read_text()


@contextmanager
def started(
    root: Path, inside: Sequence[str] = (), **environment: str
) -> Iterator[subprocess.Popen[str]]:
    """Starts start.sh. Ends the remaining processes afterwards, as in a container."""
    text = Path(manifest_module.__file__).with_name("start.sh").read_text()
    for place in ("/run/slurm-extender", " /slurm-extender/pod", ">/slurm-extender/pod"):
        text = text.replace(place, place.replace("/", f"{root}/", 1))
    text = text.replace("/slurm-extender/scripts", f"{root}/slurm-extender/scripts")
    text = text.replace("/var/spool/slurmd", f"{root}/spool")
    text = text.replace("/dev/termination-log", f"{root}/termination-log")
    text = text.replace("/sys/fs/cgroup", f"{root}/cgroup").replace("/run/slurm/", f"{root}/run/slurm/")
    text = text.replace("sleep 2", "sleep 0.1")
    with (root / "output").open("w") as to:
        ran = subprocess.Popen(
            [*inside, "/bin/sh", "-c", text, "start", "-D", "-Z"],
            env={"PATH": f"{root}/bin:/usr/bin:/bin", **environment},
            stdout=to,
            start_new_session=True,
            text=True,
        )
    try:
        yield ran
    finally:
        with suppress(ProcessLookupError):
            os.killpg(ran.pid, signal.SIGKILL)
        ran.wait()


def test_slurmd_starts_with_its_options_and_lists_its_devices(root: Path) -> None:
    assert start(root) == (0, "slurmd -D -Z\n")
    assert (root / "run/slurm-extender/gres").read_text() == "slurmd -V\nslurmd -G -D -Z\n"


def test_list_has_the_error_if_slurmd_cannot_list_its_devices(root: Path) -> None:
    program(root / "bin/slurmd", '[ "$1" != -G ] || { echo "fatal: no such file"; exit 1; }')
    assert start(root)[0] == 0
    with pytest.raises(WrongGres, match="no such file"):
        slurmd_gres.parse((root / "run/slurm-extender/gres").read_text())


def test_killed_listing_of_devices_is_an_error(root: Path) -> None:
    program(root / "bin/slurmd", '[ "$1" != -G ] || kill -KILL "$$"')
    start(root)
    with pytest.raises(WrongGres, match="fatal: slurmd -G ended with exit status 137"):
        slurmd_gres.parse((root / "run/slurm-extender/gres").read_text())


_LISTENS = """
import os, signal, socket, sys

if len(sys.argv) < 3:
    port = socket.create_server(("127.0.0.1", 0))
    os.set_inheritable(port.fileno(), True)
    sys.argv.append(str(port.fileno()))
signal.signal(signal.SIGHUP, lambda *_: os.execv(sys.executable, [sys.executable, *sys.argv]))
with open(sys.argv[1], "w") as file:
    file.write(str(os.getpid()))
while True:
    signal.pause()
"""


def listening(root: Path) -> str:
    """Returns the command of a slurmd that has fetched the configuration. This slurmd opens a port, and
    then writes the file `pid`. At SIGHUP, slurmd executes itself, and keeps the port."""
    (root / "listens.py").write_text(_LISTENS)
    return f"{sys.executable} {root}/listens.py {root}/pid"


def test_devices_are_listed_by_the_configuration_that_slurmd_read(root: Path) -> None:
    """slurmctld reconfigures twice while slurmctld can reach no slurmd: after the first list, and after
    slurmd has fetched files but has no open port."""
    listed, fetched = root / "run/slurm-extender/gres", root / "run/slurm/conf"
    fetched.mkdir(parents=True)
    slurmctld = root / "slurm.conf"
    slurmctld.write_text("before")
    behaves = f"""[ "$1" != -V ] || exit 0
[ "$1" = -D ] || {{ cat "${{SLURM_CONF:-{slurmctld}}}"; exit; }}
until [ -e {root}/fetches ]; do sleep 0.05; done
cp {slurmctld} {fetched}/slurm.conf
echo newest >{slurmctld}
exec {listening(root)}"""
    program(root / "bin/slurmd", behaves)
    with started(root):
        eventually(lambda: listed.exists() and listed.read_text() == "before", within_s=10)
        slurmctld.write_text("taken")
        (root / "fetches").touch()
        eventually(lambda: listed.read_text() == "taken", within_s=10)


def test_devices_are_listed_again_after_slurmd_executes_itself(root: Path) -> None:
    """After `scontrol reconfigure`, slurmd executes itself. The script repeats a failed list. `slurmd
    -G` removes the limits of CoreSpecCount and MemSpecLimit, and the script restores both limits."""
    order, listed = root / "order", root / "run/slurm-extender/gres"
    order.write_text("before")
    cgroup = Path("/proc/self/cgroup").read_text().rpartition("0::")[2].strip()
    limits = [root / f"cgroup{cgroup}/{name}" for name in ("cpuset.cpus", "memory.max")]
    limits[0].parent.mkdir(parents=True)
    for limit in limits:
        limit.write_text("7\n")
    behaves = f"""[ "$1" != -V ] || exit 0
[ "$1" = -D ] || {{ echo max >{limits[0]}; echo max >{limits[1]}; cat {order}; exit; }}
echo 3 >{limits[0]}; echo 3 >{limits[1]}
exec {listening(root)}"""
    program(root / "bin/slurmd", behaves)
    with started(root):
        eventually(lambda: listed.exists() and listed.read_text() == "before", within_s=10)
        order.unlink()
        began = root / "pid"  # slurmd starts after the list
        pid = eventually(lambda: began.exists() and began.read_text().strip(), within_s=10)
        os.kill(int(pid), signal.SIGHUP)
        eventually(lambda: "fatal: slurmd -G ended" in listed.read_text(), within_s=10)
        order.write_text("after")
        eventually(lambda: listed.read_text() == "after", within_s=10)
        eventually(lambda: [limit.read_text() for limit in limits] == ["3\n", "3\n"], within_s=10)


def test_slurmd_claims_a_boot_once_in_the_life_of_a_pod(root: Path) -> None:
    assert start(root, SLURM_EXTENDER_BOOTS="yes") == (0, "slurmd -D -Z -b\n")
    assert start(root, SLURM_EXTENDER_BOOTS="yes") == (0, "slurmd -D -Z\n")


def test_crashed_slurmd_restarts_in_the_same_container(root: Path) -> None:
    """Steps of jobs continue in the container. `date` gives the times of slurmd's start and end."""
    (root / "clock").write_text("0")
    program(root / "bin/date", f'read -r now <{root}/clock; echo "$now"')
    crash = f"""[ "$1" = -G ] && echo listed >>{root}/lists
[ "$1" != -D ] && exit
echo "slurmd $*"
[ -e {root}/crashed ] && exit 4
: >{root}/crashed
echo 61 >{root}/clock
exit 3"""
    program(root / "bin/slurmd", crash)
    status, output = start(root, SLURM_EXTENDER_BOOTS="yes")
    assert status == 4
    assert output.splitlines() == [
        "slurmd -D -Z -b",
        "slurmd ended with exit status 3: it is started again",
        "slurmd -D -Z",  # no second boot
    ]
    assert (root / "lists").read_text().count("listed") == 2


def test_scripts_run_in_their_order_before_slurmd_and_services_beside_it(root: Path) -> None:
    scripts = root / "slurm-extender/scripts"
    program(scripts / "20-b", "echo b")
    program(scripts / "10-a", "echo a")
    program(scripts / "15-c.service", f"echo up >>{root}/up; sleep 60")
    program(root / "bin/slurmd", f'until [ -e {root}/up ]; do sleep 0.01; done; echo "slurmd $*"')
    assert start(root)[1].splitlines() == ["a", "b", "slurmd -D -Z"]


def test_failed_script_ends_the_container_and_is_named(root: Path) -> None:
    program(root / "slurm-extender/scripts/10-a", "exit 7")
    status, output = start(root)
    assert status == 7
    assert "slurmd" not in output
    assert (root / "termination-log").read_text() == "script 10-a failed with exit status 7\n"


# -- The scripts as the first process of a container


CONTAINER = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc")


def first_process(container: subprocess.Popen[str]) -> int:
    children = Path(f"/proc/{container.pid}/task/{container.pid}/children")
    return int(eventually(lambda: children.read_text().split(), within_s=10)[0])


_LEAVES_ZOMBIES = """
import os, pathlib, time
if not (child := os.fork()):
    os._exit(0) if os.fork() else (time.sleep(0.2), os._exit(0))
os.waitpid(child, 0)
time.sleep(0.6)
print([each for each in pathlib.Path("/proc").glob("[0-9]*/stat") if ") Z " in each.read_text()])
"""


def test_orphaned_processes_of_slurmd_are_reaped(root: Path) -> None:
    """slurmd does not wait for slurmstepd, because slurmstepd forks twice. Without another process that
    waits, slurmstepd would stay as a zombie and look like a job."""
    program(root / "bin/slurmd", f'[ "$1" != -D ] || exec {sys.executable} {root}/slurmd.py')
    (root / "slurmd.py").write_text(_LEAVES_ZOMBIES)
    assert start(root, CONTAINER) == (0, "[]\n")


@pytest.mark.parametrize("hangs", ["script", "slurmd -G", "slurmd"])
def test_container_ends_on_sigterm_even_if_a_process_hangs(root: Path, hangs: str) -> None:
    hang = f"touch {root}/up; exec sleep 60"
    if hangs == "slurmd":
        hang = f'[ "$1" != -D ] || {{ {hang}; }}'
    program(root / ("slurm-extender/scripts/10-a" if hangs == "script" else "bin/slurmd"), hang)
    with started(root, CONTAINER) as container:
        eventually((root / "up").exists, within_s=10)
        os.kill(first_process(container), signal.SIGTERM)
        assert container.wait(timeout=5) != 0


def stop(root: Path, before: str, state: str = "State=IDLE+DRAIN") -> tuple[int, str]:
    """Runs stop.sh. Returns how often the script looked for jobs, and the requests to Slurm. `before`
    runs before the script, in the same container. The script looks every 0.1 s instead of every
    second."""
    text = Path(manifest_module.__file__).with_name("stop.sh").read_text()
    shown = f"NodeName=n1 Arch=x86_64\n   {state} Weight=1\n   Partitions=POWER,DRAIN"
    program(root / "bin/scontrol", f"[ $1 = show ] && echo '{shown}' || echo \"$@\" >>{root}/asked")
    program(root / "bin/slurmstepd", "sleep ${1:-2}")
    looks = text.replace("    sleep 1\n", f"    echo >>{root}/looks\n    sleep 0.1\n")
    assert looks != text
    (root / "stop").write_text(looks)
    argv = (*CONTAINER, "sh", "-c", f"{before}\nsh {root}/stop n1 gpu\nexit 0")
    path = f"{root}/bin:/usr/bin:/bin"
    subprocess.run(argv, env={"PATH": path}, check=True, timeout=30, start_new_session=True)
    asked = root / "asked"
    return (root / "looks").read_text().count("\n"), asked.read_text() if asked.exists() else ""


@pytest.mark.parametrize(
    ("before", "waits"),
    [
        ("", False),
        ("slurmstepd &", True),
        ("SLURM_SCRIPT_CONTEXT=prolog_slurmd sleep 2 &", True),
        ("SLURM_SCRIPT_CONTEXT=prolog_task sleep 9 &", False),
        ("sh -c 'slurmstepd 0.1 & exec sleep 9' & sleep 1.5", False),
        ("slurmstepd infinity & sleep 0.1", False),
    ],
)
def test_slurmd_ends_after_jobs_and_their_prologs(root: Path, before: str, waits: bool) -> None:
    looks, asked = stop(root, before)
    assert (looks > 3) is waits
    assert looks >= 3
    assert not asked


def test_a_node_that_is_not_drained_is_drained_before_slurmd_ends(root: Path) -> None:
    _, asked = stop(root, "", "State=IDLE+DYNAMIC_NORM")
    assert "update nodename=n1 state=drain reason=slurm-extender pool gpu: its slurmd Pod is" in asked
