"""Restarts slurmctld without any state, opens the partition again, and finds jobs that wait for the
Nodes of their Pods."""

from __future__ import annotations

import shutil

from deploy.local.layout import Layout
from tests.end_to_end.actors import Actors

PARTITION = "PartitionName=main"


def lose_all_state(actors: Actors) -> None:
    cluster = actors.cluster
    cluster.stop("slurmctld")
    state = Layout(cluster.directory).slurm / "var/state"
    for entry in state.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    cluster.start("slurmctld")


def open_partition(actors: Actors) -> None:
    actors.cluster.run_slurm("scontrol", "update", PARTITION, "State=UP")


def waits_pinned(actors: Actors, name: str, node: str) -> bool:
    job = actors.job_of(name)
    return job is not None and actors.scontrol(name).get("ReqNodeList") == node
