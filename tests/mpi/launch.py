"""How long `srun` over slurmds, and `mpirun` by SSH over Pods, take to start the ranks of a program and see it end, side
by side on this machine. `python -m tests.mpi.launch` prints a table; `--quick` has few ranks, to see that it works."""

from __future__ import annotations

import argparse
import os
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
from tests.mpi.tree import PROGRAM, RELEASE, WithMpi, tree


class Size(NamedTuple):
    """How many nodes, or Pods, of how many ranks each."""

    places: int
    each: int

    @property
    def ranks(self) -> int:
        return self.places * self.each


SIZES: Final = (Size(10, 8), Size(16, 16), Size(16, 64))
QUICK: Final = (Size(3, 2),)
TIMES: Final = 3
_TCP: Final = ("env", "OMPI_MCA_pml=ob1", "OMPI_MCA_btl=self,tcp")
"""The way of messages that both have here: slurmds of one machine have one /dev/shm, where ranks of several nodes
would take each other's memory for theirs."""
_LOOPBACK: Final = ("env", "OMPI_MCA_btl_tcp_if_include=lo")
"""Where slurmds of one machine find each other."""
_PAUSE_S: Final = 0.5
"""mpirun of Open MPI 5.0.7 may wait for ever for ranks that have ended before it looks; it is not counted."""
PROGRAMS: Final = {"starts": ("sleep", str(_PAUSE_S)), "MPI": (*_TCP, PROGRAM)}
_SLURMS_MPI: Final = {"starts": "none", "MPI": "pmix"}
Start = Callable[[Size, str], str]
"""Starts a program of PROGRAMS, and returns what it has printed."""


def over_slurmds(cluster: Cluster, size: Size, what: str) -> str:
    """By srun."""
    given = (f"--ntasks={size.ranks}", f"--nodes={size.places}", f"--mpi={_SLURMS_MPI[what]}")
    return cluster.run_slurm("srun", *given, *_LOOPBACK, *PROGRAMS[what]).stdout


def over_pods(job: Pods, size: Size, what: str) -> str:
    """By mpirun in the first Pod."""
    hosts = ",".join(f"mpi-{index}:{size.each}" for index in range(size.places))
    return job.execute(0, "mpirun", "--host", hosts, "--bind-to", "none", *PROGRAMS[what])


def seconds(start: Start, size: Size, what: str) -> float:
    """How long it takes, from its start to its end."""
    began = time.monotonic()
    printed = start(size, what)
    took = time.monotonic() - began
    if what == "MPI":
        assert printed == f"{size.ranks} ranks\n", printed
        return took
    return took - _PAUSE_S


def measure(starts: Mapping[str, Start], size: Size, what: str, times: int) -> dict[str, float]:
    """The median of each way; they take turns."""
    each = [{way: seconds(start, size, what) for way, start in starts.items()} for _ in range(times)]
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
        job.start(0, "sleep", "infinity")
        yield {
            "srun": lambda size, what: over_slurmds(cluster, size, what),
            "mpirun": lambda size, what: over_pods(job, size, what),
        }


def table(sizes: tuple[Size, ...], times: int) -> Iterator[str]:
    """Yields a line for each size and program."""
    yield "| ranks | on | each rank | srun over slurmds | mpirun over Pods | ratio |"
    yield "|---:|---:|---|---:|---:|---:|"
    with both(max(size.places for size in sizes), max(size.each for size in sizes)) as starts:
        for size in sizes:
            for what in PROGRAMS:
                took = measure(starts, size, what, times)
                ratio = took["mpirun"] / took["srun"]
                figures = f"{took['srun']:.1f} s | {took['mpirun']:.1f} s | {ratio:.1f}"
                yield f"| {size.ranks:,} | {size.places} | {what} | {figures} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    sizes = QUICK if parser.parse_args().quick else SIZES
    sys.stdout.write(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.0f}, Slurm {RELEASE}\n")
    for line in table(sizes, TIMES):
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
