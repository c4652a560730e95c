"""Measures how long `srun` and `mpirun` take to run a program of many ranks. srun starts the ranks by
slurmds, and mpirun starts them by SSH in Pods.

Both run on this machine, and take turns. `python -m tests.mpi.launch` prints a table; `--quick` runs few
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
    """Number of nodes or Pods (`places`), and number of ranks on each of them."""

    places: int
    each: int

    @property
    def ranks(self) -> int:
        return self.places * self.each


class Program(NamedTuple):
    """The program that each rank runs, and what it prints."""

    argv: tuple[str, ...]
    mpi: str
    """Value of srun's option --mpi."""
    argv_of_srun: tuple[str, ...] = ()
    """Command for srun, if srun must run another program that does the same."""
    lines_each: int = 0
    """Number of lines that each rank prints."""
    lines: int = 0
    """Number of lines that the first rank prints in addition."""
    uncounted_s: float = 0.0
    most: int = 100_000
    """Largest number of ranks with which the program is measured."""


SIZES: Final = (Size(10, 8), Size(16, 16), Size(16, 64))
QUICK: Final = (Size(3, 2),)
TIMES: Final = 3
PROGRAMS: Final = {
    # uncounted: 5 s of sleep. mpirun of Open MPI 5.0.7 may wait for ever if some ranks end before all
    # ranks have started.
    "starts and ends": Program(("sleep", "5"), "none", uncounted_s=5),
    # srun runs a shell script with PMI2, which each Debian release of Slurm has. mpirun runs a program
    # with PMIx.
    "tells all others a word": Program((WORDS,), "pmi2", ("bash", "/tmp/rank.sh"), lines_each=1),
    # The ranks wait in a busy loop. So with more than 8 ranks on two cores, the times would be
    # meaningless.
    "MPI_Init, MPI_Barrier, MPI_Finalize": Program((BARRIER,), "pmix", lines=1, most=8),
}
_COMMON: Final = ("env", "OMPI_MCA_pml=ob1", "OMPI_MCA_btl=self,tcp", "OMPI_MCA_mpi_yield_when_idle=1")
"""Settings of Open MPI for srun and mpirun: messages go over TCP. Otherwise ranks of different nodes
would exchange messages by /dev/shm, which the slurmds of one machine share."""
_LOOPBACK: Final = "OMPI_MCA_btl_tcp_if_include=lo"
"""Setting of Open MPI for slurmds on one machine: ranks exchange messages over loopback."""
Start = Callable[[Size, Program], str]
"""Function that runs a program with ranks of this size, and returns the output."""


def over_slurmds(cluster: Cluster, size: Size, program: Program) -> str:
    """Runs a program with srun, and returns the output."""
    places = (f"--nodes={size.places}", f"--ntasks-per-node={size.each}", f"--ntasks={size.ranks}")
    given = (*places, f"--mpi={program.mpi}", *_COMMON, _LOOPBACK)
    return cluster.run_slurm("srun", *given, *(program.argv_of_srun or program.argv)).stdout


def over_pods(job: Pods, size: Size, program: Program) -> str:
    """Runs a program with mpirun in the first Pod, and returns the output."""
    hosts = ",".join(f"mpi-{index}:{size.each}" for index in range(size.places))
    # mpirun sets these two variables, because slurmd would set them and the program reads them
    named = ("SLURMD_NODENAME=pod", f"SLURM_NTASKS={size.ranks}")
    given = ("--host", hosts, "--bind-to", "none", *_COMMON, *named)
    return job.execute(0, "mpirun", *given, *program.argv)


def seconds(start: Start, size: Size, program: Program) -> float:
    """Returns the seconds that a program takes from start to end, without `uncounted_s`."""
    began = time.monotonic()
    printed = start(size, program)
    took = time.monotonic() - began
    expected = program.lines + program.lines_each * size.ranks
    assert printed.count("\n") == expected, printed
    return took - program.uncounted_s


def measure(starts: Mapping[str, Start], size: Size, program: Program) -> dict[str, float]:
    """Returns the median time for each way to start the program (srun or mpirun). The ways take
    turns."""
    each = [{way: seconds(start, size, program) for way, start in starts.items()} for _ in range(TIMES)]
    return {way: statistics.median(one[way] for one in each) for way in starts}


@contextmanager
def both(places: int, each: int) -> Iterator[dict[str, Start]]:
    """Starts slurmds and Pods. Yields, for srun and mpirun, the function that runs a program in this
    way."""
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
    """Yields the lines of the table: a line for each size and program."""
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
