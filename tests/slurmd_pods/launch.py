"""Measures how long `srun` takes to run a program on real slurmds of this machine. In one program, each
rank sends a word to another rank (PMI2). In the other program, the ranks do nothing. `python -m
tests.slurmd_pods.launch` prints a table."""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

from deploy.local.cluster import Cluster
from deploy.local.spec import ClusterSpec

NODES, RANKS, TIMES = 8, (80, 256, 1024), 3
RANK = Path(__file__).with_name("rank.sh")
PROGRAMS = {"nothing": ("--mpi=none", "true"), "a word by PMI2": ("--mpi=pmi2", "bash", "/tmp/rank.sh")}
"""Programs of the ranks, with the options of srun."""


def seconds(cluster: Cluster, ranks: int, *program: str) -> float:
    """Returns the seconds from the start of srun until the end of srun."""
    began = time.monotonic()
    cluster.run_slurm("srun", f"--ntasks={ranks}", f"--nodes={NODES}", *program)
    return time.monotonic() - began


def main() -> None:
    spec = ClusterSpec(nodes=NODES, cpus_per_node=max(RANKS) // NODES, kubernetes=False, extender=False)
    with (
        tempfile.TemporaryDirectory(prefix="launch-") as directory,
        Cluster.up(spec, Path(directory)) as cluster,
    ):
        shutil.copy(RANK, cluster.directory / "slurm" / "tmp")
        load, cores = os.getloadavg()[0], os.cpu_count()
        sys.stdout.write(f"{NODES} slurmds of {spec.release}, {cores} cores, load {load:.0f}\n")
        for ranks in RANKS:
            for what, program in PROGRAMS.items():
                each = [seconds(cluster, ranks, *program) for _ in range(TIMES)]
                middle, most = statistics.median(each), max(each)
                sys.stdout.write(f"{ranks} ranks, {what}: {middle:.1f} s, at most {most:.1f} s\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main()
