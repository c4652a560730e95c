"""Tests of docs/concepts/resources.md: the CPUs of Kubernetes and of Slurm, on nodes with different
declarations. The CPUs come from squeue, GET nodes/ and kubectl describe node."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from deploy.local.cluster import Cluster
from deploy.local.layout import Layout
from deploy.local.spec import ClusterSpec
from extender.unmanaged.free_capacity import FULL
from tests.end_to_end.actors import Actors
from tests.eventually import eventually

pytestmark = pytest.mark.real

RELEASES = ["26.05", "24.11"]
THREADS: dict[str, Any] = {"cpus_per_node": 8, "threads_per_core": 2}


@contextmanager
def one_node(release: str, **shape: Any) -> Iterator[Actors]:
    """Starts a cluster of a single node without GPUs, and yields the actors."""
    spec = ClusterSpec(release=release, gpus_per_node=0, **({"nodes": 1} | shape))
    with (
        tempfile.TemporaryDirectory(prefix="cpus-") as directory,
        Cluster.up(spec, Path(directory)) as cluster,
    ):
        actors = Actors(cluster)
        yield actors
        actors.close()


def restart(cluster: Cluster, unit: str) -> None:
    cluster.stop("extender")
    cluster.start("extender", env={"SLURM_EXTENDER_CPU_UNIT": unit})


def create(actors: Actors, count: int, cpu: str, name: str = "p") -> list[str]:
    names = [f"{name}-{number}" for number in range(count)]
    for each in names:
        actors.create(each, cpu=cpu, memory="10Mi")
    return names


def bound(actors: Actors, names: list[str]) -> list[str]:
    pods = actors.pods()
    return [name for name in names if pods[actors.full(name)]["spec"].get("nodeName")]


def all_but(actors: Actors, names: list[str], waiting: int) -> list[str]:
    """Waits until only `waiting` Pods wait and have a condition. Returns the bound Pods."""
    eventually(lambda: len(bound(actors, names)) == len(names) - waiting, f"{waiting} wait")
    placed = bound(actors, names)
    for name in set(names) - set(placed):
        actors.queued(name)
        eventually(partial(actors.condition, name), f"{name} is told")
    assert bound(actors, names) == placed
    return placed


def given_away(actors: Actors) -> int:
    """Returns the CPUs that Slurm has allocated, from GET nodes/."""
    token = actors.cluster.token_file.read_text().strip()
    url = f"{actors.cluster.slurmrestd_url}/slurm/v0.0.42/nodes/"
    listed = httpx.get(url, headers={"X-SLURM-USER-TOKEN": token}, timeout=10).raise_for_status()
    return sum(node["alloc_cpus"] for node in listed.json()["nodes"])


def described(actors: Actors) -> str:
    """Returns the CPUs that Pods request, from kubectl describe node."""
    (node,) = actors.cluster.spec.node_names or actors.cluster.spec.external_names
    shown = actors.cluster.kubectl("describe", "node", node).stdout
    found = re.search(r"Allocated resources:.*?\n\s+cpu\s+(\S+)", shown, re.DOTALL)
    assert found, shown
    return found[1]


def job_cpus(actors: Actors, name: str) -> int:
    """Returns the CPUs of a Pod's job, from squeue."""
    job = actors.job_of(name)
    assert job is not None
    return int(actors.cluster.run_slurm("squeue", "-h", "-j", str(job.id), "-o", "%C").stdout)


def refused_for_room(actors: Actors, name: str) -> bool:
    return FULL in actors.condition(name, "PodScheduled").get("message", "")


def unmanaged(actors: Actors, name: str, cpu: str) -> None:
    actors.create(name, cpu=cpu, memory="10Mi", scheduler="default-scheduler")


# Parts of CPUs


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.one_release("How Slurm counts CPUs is tested on each release by cores of two threads")
def test_small_pods_share_cpus_if_slurm_counts_tenths(release: str) -> None:
    """Slurm gives each job at least one CPU. So only four of ten Pods with 100m run on a node of 4 CPUs.
    All ten Pods run after slurm.conf declares 40 CPUs (tenths) for the node."""
    with one_node(release, cpus_per_node=4) as actors:
        names = create(actors, 10, "100m")
        first, *_ = all_but(actors, names, waiting=6)
        assert (job_cpus(actors, first), given_away(actors), described(actors)) == (1, 4, "400m")
        actors.delete(first)
        all_but(actors, [name for name in names if name != first], waiting=5)
        actors.clean_up()
        actors.begin()
        counts_tenths(actors.cluster)
        share_cpus(actors)


def counts_tenths(cluster: Cluster) -> None:
    conf = Layout(cluster.directory).slurm / "etc/slurm.conf"
    tenths = replace(cluster.spec, slurm_cpus_per_node=40).slurm_size
    conf.write_text(conf.read_text().replace(cluster.spec.slurm_size, tenths))
    cluster.restart("slurmctld")
    cluster.restart("slurmd-node-1")
    restart(cluster, "100m")


def share_cpus(actors: Actors) -> None:
    names = create(actors, 10, "100m")
    all_but(actors, names, waiting=0)
    assert (job_cpus(actors, names[0]), given_away(actors), described(actors)) == (1, 10, "1")
    actors.create("odd", cpu="250m", memory="10Mi")
    actors.bound("odd")
    assert (job_cpus(actors, "odd"), given_away(actors), described(actors)) == (3, 13, "1250m")
    actors.cluster.run_slurm("sbatch", "-c10", "--mem=10", "--wrap", "sleep 900", user="alice")
    eventually(lambda: given_away(actors) == 23, "a native job runs")
    unmanaged(actors, "large", "1800m")  # fits in Kubernetes, but Slurm has 17 tenths left
    eventually(lambda: refused_for_room(actors, "large"), "refused")
    unmanaged(actors, "small", "1700m")
    actors.bound("small")
    assert actors.ready() == (200, {"ready": True, "problems": []})


# Threads


@pytest.mark.parametrize("release", RELEASES)
def test_a_pod_takes_whole_cores_of_two_threads(release: str) -> None:
    """If Slurm counts cores, squeue shows the CPUs of whole cores. If Slurm counts CPUs, squeue shows
    the requested CPUs."""
    with one_node(release, **THREADS) as actors:
        takes_whole_cores(actors, one=2, three=4)
        actors.clean_up()
        actors.begin()
        counts_by_cpu(actors.cluster)
        takes_whole_cores(actors, one=1, three=3)


def test_a_pod_takes_whole_cores_of_an_external_node() -> None:
    with one_node("26.05", **THREADS, nodes=0, external_nodes=1) as actors:
        takes_whole_cores(actors, one=2, three=4)


def counts_by_cpu(cluster: Cluster) -> None:
    with (Layout(cluster.directory).slurm / "etc/slurm.conf").open("a") as conf:
        conf.write("SelectTypeParameters=CR_CPU_Memory\n")
    cluster.stop("extender")
    cluster.restart("slurmctld")
    (cluster.logs / "extender.log").unlink()
    cluster.start("extender")


def takes_whole_cores(actors: Actors, *, one: int, three: int) -> None:
    """Asserts that 4 cores of 2 threads are 8 CPUs in both systems, and that each core goes to a single
    job. `one` and `three` are squeue's CPUs for jobs of 1 and 3 CPUs. Unmanaged Pods get the CPUs of
    free cores."""
    log = (actors.cluster.logs / "extender.log").read_text
    eventually(lambda: "Slurm gives whole cores of 2 CPUs" in log(), "the log says so")
    actors.create("three", cpu="3", memory="10Mi")
    actors.bound("three")
    assert (job_cpus(actors, "three"), given_away(actors), described(actors)) == (three, 4, "3")
    actors.delete("three")
    eventually(lambda: not given_away(actors), "it is gone")
    names = create(actors, 5, "1")
    placed = all_but(actors, names, waiting=1)
    assert (job_cpus(actors, placed[0]), given_away(actors), described(actors)) == (one, 8, "4")
    unmanaged(actors, "u", "1")  # Kubernetes counts 4 free CPUs, and Slurm none
    eventually(lambda: refused_for_room(actors, "u"), "refused")
    for name in placed[:3]:
        actors.delete(name)
    actors.bound("u")
    all_but(actors, [name for name in names if name not in placed[:3]], waiting=0)
    assert given_away(actors) == 4
    assert actors.ready()[1]["problems"] == []


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.one_release("How Slurm counts CPUs is tested on each release by cores of two threads")
def test_cpu_unit_makes_kubernetes_and_slurm_agree_on_cores(release: str) -> None:
    with one_node(release, slurm_cpus_per_node=4, **THREADS) as actors:
        advice = "SLURM_EXTENDER_CPU_UNIT=2"
        eventually(lambda: advice in actors.problem("CPUs"), "the unit is told")
        restart(actors.cluster, "2")
        actors.create("small", cpu="1", memory="10Mi")
        actors.bound("small")
        assert (job_cpus(actors, "small"), given_away(actors), described(actors)) == (1, 1, "1")
        actors.create("large", cpu="6", memory="10Mi")
        actors.bound("large")
        assert (job_cpus(actors, "large"), given_away(actors), described(actors)) == (3, 4, "7")
        assert actors.ready() == (200, {"ready": True, "problems": []})
