"""Tests of Pods that request parts of GPUs, on real systems. The Pod has Slurm's grant, and can open
only the GPU of the grant."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deploy.local.cluster import Cluster
from deploy.local.spec import ClusterSpec
from slurm_client import gres
from tests.cgroup_tree import mounted
from tests.end_to_end.actors import Actors, Manifest
from tests.end_to_end.test_node_agent import GPUS, agent_in, environment_of, opened
from tests.eventually import eventually
from wellknown.allocation import Allocation

pytestmark = pytest.mark.real

PARTS = {"shard": 4, "mps": 100}
"""Number of parts of a GPU."""
RESOURCES = {"nvidia.com/gpu": "gpu", "example.com/shard": "shard:h100", "example.com/mps": "mps"}


@contextmanager
def one_node(release: str, name: str) -> Iterator[Actors]:
    """Starts a cluster of a single node, with parts of the given name on each GPU. Yields the actors."""
    spec = ClusterSpec(
        release=release,
        nodes=1,
        gpus_per_node=len(GPUS),
        shared_gres=((name, len(GPUS) * PARTS[name]),),
        extender_settings=(("GRES", json.dumps(RESOURCES)),),
    )
    with (
        tempfile.TemporaryDirectory(prefix="parts-") as directory,
        Cluster.up(spec, Path(directory)) as cluster,
    ):
        actors = Actors(cluster)
        yield actors
        actors.close()


def create(actors: Actors, pod: str, resource: str, count: int) -> tuple[str, str]:
    """Creates a Pod, waits until the Pod is bound, and returns the uid and the granted devices."""
    asked = {"cpu": "1", "memory": "100Mi", resource: str(count)}
    container: Manifest = {"name": "c", "image": "busybox"}
    actors.create(pod, containers=[container | {"resources": {"requests": asked, "limits": asked}}])
    actors.bound(pod)
    metadata = (actors.see(pod) or {})["metadata"]
    allocation = Allocation.parse(metadata["annotations"])
    assert allocation is not None
    return metadata["uid"], allocation.gres


def in_slurm(actors: Actors, pod: str) -> str:
    """Returns the details of a Pod's job in scontrol, with the devices."""
    job = actors.job_of(pod)
    assert job is not None
    return actors.cluster.run_slurm("scontrol", "show", "job", "-d", str(job.id)).stdout


@pytest.mark.parametrize("name", PARTS)
def test_only_pods_with_parts_of_a_gpu_open_the_gpu(
    name: str, slurm_release: str, tmp_path: Path
) -> None:
    half, resource = PARTS[name] // 2, f"example.com/{name}"
    with mounted(tmp_path) as tree, one_node(slurm_release, name) as actors:
        tree.make("kubepods/burstable")
        parts = (name, PARTS[name])
        with (
            environment_of("node-1", actors, tree, tmp_path, parts) as (environment, _),
            agent_in(environment, tmp_path),
        ):
            uids: dict[str, str] = {}
            for pod in ("one", "two"):
                uids[pod], granted = create(actors, pod, resource, half)
                assert gres.counts(granted)[name] == half
                assert gres.numbers(granted) == {name: (0,)}
                of_all = ",".join([f"{half}/{PARTS[name]}", *[f"0/{PARTS[name]}"] * (len(GPUS) - 1)])
                assert f"GRES={name}:{half}({of_all})" in in_slurm(actors, pod)
            uids["whole"], granted = create(actors, "whole", "nvidia.com/gpu", 1)
            (number,) = gres.numbers(granted)["gpu"]
            assert number > 0
            for pod, has in (("one", GPUS[0]), ("two", GPUS[0]), ("whole", GPUS[number])):
                container = f"kubepods/burstable/pod{uids[pod]}/c"
                tree.make(container)
                eventually(lambda: opened(tree, container, tmp_path) == has, f"{pod} has its GPU")  # noqa: B023
