"""How long `srun` over slurmds, and `mpirun` by SSH over Pods, take to run a program of many ranks.

Both run on this machine, and take turns. `python -m tests.mpi.launch` prints a table; `--quick` has few
ranks.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from deploy.local.cluster import Cluster
from deploy.local.spec import ClusterSpec
from tests.mpi.pods import Pods, pods
from tests.mpi.tree import BARRIER, RELEASE, WORDS, WithMpi, tree
from tests.slurmd_pods.launch import RANK


class Size(NamedTuple):
    """How many nodes, or Pods, of how many ranks each."""

    places: int
    each: int

    @property
    def ranks(self) -> int:
        return self.places * self.each


class Program(NamedTuple):
    """What each rank runs."""

    argv: tuple[str, ...]
    mpi: str
    """How srun is told of it: --mpi."""
    argv_of_srun: tuple[str, ...] = ()
    """Where it is another program that does the same."""
    lines_each: int = 0
    """How many lines a rank prints."""
    lines: int = 0
    """And the first one besides."""
    uncounted_s: float = 0.0
    most: int = 100_000
    """How many ranks it is tried with."""


SIZES: Final = (Size(10, 8), Size(16, 16), Size(16, 64))
QUICK: Final = (Size(3, 2),)
TIMES: Final = 3
PROGRAMS: Final = {
    # mpirun of Open MPI 5.0.7 may wait for ever where ranks end before all have started.
    "starts and ends": Program(("sleep", "5"), "none", uncounted_s=5),
    # slurmds by PMI2, which each release of Debian's has, and a shell's script; mpirun by PMIx.
    "tells all others a word": Program((WORDS,), "pmi2", ("bash", "/tmp/rank.sh"), lines_each=1),
    # Ranks that wait for each other by MPI keep cores busy: of more, two cores say nothing.
    "MPI_Init, MPI_Barrier, MPI_Finalize": Program((BARRIER,), "pmix", lines=1, most=8),
}
_COMMON: Final = ("env", "OMPI_MCA_pml=ob1", "OMPI_MCA_btl=self,tcp", "OMPI_MCA_mpi_yield_when_idle=1")
"""The way of messages that both have here: slurmds of one machine have one /dev/shm, where ranks of
several nodes would take each other's memory for theirs."""
_LOOPBACK: Final = "OMPI_MCA_btl_tcp_if_include=lo"
"""Where slurmds of one machine find each other."""
Start = Callable[[Size, Program], str]
"""Starts a program, and returns what it has printed."""


def over_slurmds(cluster: Cluster, size: Size, program: Program) -> str:
    """By srun."""
    places = (f"--nodes={size.places}", f"--ntasks-per-node={size.each}", f"--ntasks={size.ranks}")
    given = (*places, f"--mpi={program.mpi}", *_COMMON, _LOOPBACK)
    return cluster.run_slurm("srun", *given, *(program.argv_of_srun or program.argv)).stdout


def over_pods(job: Pods, size: Size, program: Program) -> str:
    """By mpirun in the first Pod."""
    hosts = ",".join(f"mpi-{index}:{size.each}" for index in range(size.places))
    # As slurmd has them, for the program that says where it is.
    named = ("SLURMD_NODENAME=pod", f"SLURM_NTASKS={size.ranks}")
    given = ("--host", hosts, "--bind-to", "none", *_COMMON, *named)
    return job.execute(0, "mpirun", *given, *program.argv)


def seconds(start: Start, size: Size, program: Program) -> float:
    """How long it takes, from its start to its end."""
    began = time.monotonic()
    printed = start(size, program)
    took = time.monotonic() - began
    expected = program.lines + program.lines_each * size.ranks
    assert printed.count("\n") == expected, printed
    return took - program.uncounted_s


def measure(starts: Mapping[str, Start], size: Size, program: Program) -> dict[str, float]:
    """The median of each way; they take turns."""
    each = [{way: seconds(start, size, program) for way, start in starts.items()} for _ in range(TIMES)]
    return {way: statistics.median(one[way] for one in each) for way in starts}


@contextmanager
def both(places: int, each: int) -> Iterator[dict[str, Start]]:
    """So many slurmds, and so many Pods, which are up."""
    spec = ClusterSpec(
        nodes=places, cpus_per_node=each, release=RELEASE, kubernetes=False, extender=False
    )
    with (
        tempfile.TemporaryDirectory(prefix="mpi-") as directory,
        WithMpi.up(spec, Path(directory) / "slurm") as cluster,
        pods(tree(), Path(directory) / "pods", places, each) as job,
    ):
        shutil.copy(RANK, cluster.directory / "slurm" / "tmp")
        job.start(0, "sleep", "infinity")
        yield {
            "srun": lambda size, program: over_slurmds(cluster, size, program),
            "mpirun": lambda size, program: over_pods(job, size, program),
        }


def table(sizes: tuple[Size, ...]) -> Iterator[str]:
    """Yields a line for each size and program."""
    yield "| ranks | nodes or Pods | each rank | srun | mpirun | ratio |"
    yield "|---:|---:|---|---:|---:|---:|"
    with both(max(size.places for size in sizes), max(size.each for size in sizes)) as starts:
        for size in sizes:
            for what, program in PROGRAMS.items():
                if size.ranks <= program.most:
                    took = measure(starts, size, program)
                    figures = f"{took['srun']:.1f} s | {took['mpirun']:.1f} s"
                    ratio = f"{took['mpirun'] / took['srun']:.1f}"
                    yield f"| {size.ranks:,} | {size.places} | {what} | {figures} | {ratio} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    sizes = QUICK if parser.parse_args().quick else SIZES
    sys.stdout.write(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.0f}, Slurm {RELEASE}\n")
    for line in table(sizes):
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
