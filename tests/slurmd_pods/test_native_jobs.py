"""Tests of each kind of native job on the nodes of a pool, which are dynamic nodes of Slurm."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deploy.local.layout import Layout
from deploy.local.slurm.tree import tree_place
from tests.eventually import eventually, eventually_not
from tests.slurmd_pods.world import NODES, World

pytestmark = pytest.mark.real

DYNAMIC = ("-p", "dynamic", "--mem=100")
RANKS = 16
HERE = Path(__file__).parent
RANK = (HERE / "rank.sh").read_text()


def alices(world: World, program: str, *arguments: str) -> list[str]:
    """Runs a command as the user alice, and returns the lines that the command prints."""
    return world.cluster.run_slurm(program, *arguments, user="alice").stdout.splitlines()


def home(world: World) -> Path:
    """Returns the home directory of alice, which all nodes share."""
    return Layout(world.cluster.directory).home / "alice"


def exchange_words(world: World, mpi: str, *program: str) -> None:
    """Runs ranks on two nodes, where each rank sends a word to its neighbour on the other node. Checks
    that each rank receives its neighbour's word."""
    step = ("-N", "2", "-n", str(RANKS), "--distribution=cyclic", f"--mpi={mpi}")
    lines = alices(world, "srun", *DYNAMIC, *step, *program)
    heard = dict(line.split() for line in lines)
    said = {int(word.split(":")[1]): word for word in heard}
    assert len(said) == RANKS
    assert heard == {said[rank]: said[(rank + 1) % RANKS] for rank in range(RANKS)}
    nodes = {rank: word.split(":")[0] for rank, word in said.items()}
    assert all(nodes[rank] != nodes[(rank + 1) % RANKS] for rank in range(RANKS))


def test_ranks_on_two_nodes_exchange_messages_by_pmi2(world: World) -> None:
    exchange_words(world, "pmi2", "bash", "-c", RANK)


def test_ranks_on_two_nodes_exchange_messages_by_pmix(world: World) -> None:
    if world.cluster.spec.release == "26.05":
        pytest.skip("Debian's Slurm 26.05 has no mpi/pmix")
    assert shutil.which("cc"), "a C compiler is needed: apt-get install gcc libc6-dev"
    (library,) = tree_place(world.cluster.spec).glob("usr/lib/*/libpmix.so.2")
    source, program = HERE / "rank.c", home(world) / "rank"
    subprocess.run(["cc", "-o", program, source, library, "-Wl,--allow-shlib-undefined"], check=True)
    exchange_words(world, "pmix", "./rank")


def test_an_array_writes_into_a_folder_that_all_nodes_share(world: World) -> None:
    script = "echo $SLURM_ARRAY_TASK_ID $SLURMD_NODENAME; sleep 2"
    array = ("-n", "4", "--array=1-12", "--output=array-%a", f"--wrap={script}")
    alices(world, "sbatch", *DYNAMIC, *array)
    eventually_not(lambda: alices(world, "squeue", "-h", "-u", "alice"), "all tasks have ended")
    lines = dict(path.read_text().split() for path in home(world).glob("array-*"))
    assert lines.keys() == {str(task) for task in range(1, 13)}
    assert set(lines.values()) == set(NODES)


def test_steps_run_in_an_allocation_of_salloc(world: World) -> None:
    steps = "srun -l printenv SLURMD_NODENAME; srun -N 1 -n 1 echo second"
    *first, second = alices(world, "salloc", *DYNAMIC, "-N", "2", "sh", "-c", steps)
    assert {line.split(": ")[0] for line in first} == {"0", "1"}
    assert len({line.split(": ")[1] for line in first} & set(NODES)) == 2
    assert second == "second"


def test_a_step_survives_a_kill_of_its_slurmd(world: World) -> None:
    """After the kill, the kubelet starts a new slurmd while the step still runs
    (node_agent/slurmd/start.sh)."""
    node, output = NODES[0], home(world) / "outlives"
    script = "srun sh -c 'echo begun; until [ -e go ]; do sleep 0.2; done; echo ended'"
    batch = ("--parsable", "-w", node, f"--output={output.name}", f"--wrap={script}")
    (job,) = alices(world, "sbatch", *DYNAMIC, *batch)
    eventually(lambda: output.exists() and output.read_text() == "begun\n", "the step has begun")
    before = world.nodes()[node]["slurmd_start_time"]
    world.restart_slurmd(node)
    eventually(lambda: world.nodes()[node]["slurmd_start_time"] != before, "slurmd is back")
    assert world.runs(int(job)) == node
    assert alices(world, "srun", *DYNAMIC, "-w", node, "echo", "beside") == ["beside"]
    (home(world) / "go").touch()
    eventually(lambda: world.completed(int(job)), "the job")
    assert output.read_text() == "begun\nended\n"


@contextmanager
def more_of_slurm_conf(world: World, lines: str) -> Iterator[None]:
    """Adds lines to slurm.conf until the block ends. Slurm already uses the lines when the block
    begins."""
    conf = Layout(world.cluster.directory).slurm / "etc" / "slurm.conf"
    before = conf.read_text()
    try:
        conf.write_text(before + lines)
        world.cluster.run_slurm("scontrol", "reconfigure")
        yield
    finally:
        conf.write_text(before)
        world.cluster.run_slurm("scontrol", "reconfigure")


def test_a_job_keeps_running_while_slurm_is_reconfigured(world: World) -> None:
    """The changed slurm.conf has a new partition, which selects the pool's nodes by feature."""
    job = world.sbatch(8, "-w", NODES[0])
    eventually(lambda: world.runs(job), "the native job runs")
    lines = "NodeSet=both Feature=dynamic\nPartitionName=both Nodes=both MaxTime=INFINITE\n"
    with more_of_slurm_conf(world, lines):
        assert world.runs(job) == NODES[0]
        there = alices(
            world, "srun", "-p", "both", "--mem=100", "-N", "4", "printenv", "SLURMD_NODENAME"
        )
        assert set(there) == set(NODES)
    eventually(lambda: world.completed(job), "the job")
    assert world.open() == set(NODES)
    assert world.images().keys() == set(NODES)
