"""The node agent as a program, beside the real systems: what Slurm granted is what a Pod may open."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING

import httpx
import psutil
import pytest

from deploy.local.ports import lease_ports
from node_agent.node_condition import Condition
from slurm_client import gres
from tests.end_to_end.actors import Actors, eventually
from tests.end_to_end.agent_account import token_of_a_pod, write_kubeconfig
from tests.node_agent.cgroup_tree import Tree, make_devices, mounted
from wellknown.allocation import Allocation

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.real

GPUS = "abcd"
"""A node's, by the names of their files, in Slurm's order."""
MOST_BYTES = 80_000_000
"""Of memory that the agent may take."""


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Tree]:
    with mounted(tmp_path) as found:
        found.make("kubepods/burstable")
        yield found


@contextmanager
def agent_of(
    node: str, actors: Actors, tree: Tree, folder: Path, parts: tuple[str, int] = ("shard", 0)
) -> Iterator[tuple[psutil.Process, str]]:
    """The agent of a Node, with the token of a Pod of its own there, and where it answers about its
    health. Each GPU is counted as so many parts, too."""
    kubeconfig = folder / "kubeconfig"
    files = make_devices(folder / "dev", *GPUS)
    lines = ((*parts, "SHARED"), ("gpu", 1, "HAS_FILE"))
    printed = (
        f"slurmd: Gres Name={name} Type=h100 Count={count} ID=7 File={file} Flags={flags}\n"
        for file in files
        for name, count, flags in lines
    )
    (folder / "gres").write_text("".join(printed))
    with (
        closing(lease_ports(["metrics", "health"])) as lease,
        (folder / "log").open("w") as log,
        token_of_a_pod(actors.cluster, node) as token,
    ):
        write_kubeconfig(kubeconfig, actors.cluster, token)
        settings = {
            "NODE": node,
            "GRES": str(folder / "gres"),
            "KUBECONFIG": str(kubeconfig),
            "CGROUPS": str(tree.root),
            "BPF": str(tree.bpf),
            "NRI": "",  # this Node is kwok's
            "DEVICE_PLUGINS": "",
            "SOCKET": str(folder / "agent.sock"),
            "LISTEN_ADDRESS": "127.0.0.1",
            "METRICS_PORT": str(lease.ports["metrics"]),
            "HEALTH_PORT": str(lease.ports["health"]),
        }
        environment = os.environ | {f"NODE_AGENT_{name}": value for name, value in settings.items()}
        argv = [sys.executable, "-m", "node_agent", "run"]
        with subprocess.Popen(argv, env=environment, stderr=log) as agent:
            try:
                yield psutil.Process(agent.pid), f"http://127.0.0.1:{lease.ports['health']}/readyz"
            finally:
                agent.terminate()
        assert agent.returncode == 0, (folder / "log").read_text()


def is_ready(url: str) -> bool:
    with suppress(httpx.TransportError):
        return httpx.get(url).status_code == 200
    return False


def told(actors: Actors, node: str) -> Condition | None:
    """What the agent says on its Node."""
    shown = actors.cluster.kubectl("get", "node", node, "--output=json").stdout
    return Condition.on(json.loads(shown))


def granted(actors: Actors, name: str) -> tuple[str, tuple[int, ...]]:
    """A Pod's uid, and the numbers of the GPUs of its job."""
    metadata = (actors.see(name) or {})["metadata"]
    allocation = Allocation.parse(metadata["annotations"])
    assert allocation is not None
    return metadata["uid"], gres.numbers(allocation.gres).get("gpu", ())


def test_pods_of_a_node_open_what_slurm_granted_them(actors: Actors, tree: Tree, tmp_path: Path) -> None:
    on_one_node = {"annotations": {"required-nodes": "node-1"}}
    for name, gpus in (("one", 1), ("two", 2), ("none", 0)):
        actors.create(name, gpus=gpus, **on_one_node)
        assert actors.bound(name) == "node-1"
    with agent_of("node-1", actors, tree, tmp_path) as (agent, readyz):
        eventually(lambda: is_ready(readyz), "the agent ready")
        seen = set[int]()
        for name, gpus in (("one", 1), ("two", 2), ("none", 0)):
            uid, numbers = granted(actors, name)
            container = f"kubepods/burstable/pod{uid}/c"
            tree.make(container)
            assert len(numbers) == gpus
            own = "".join(GPUS[number] for number in numbers)
            eventually(lambda: opened(tree, container, tmp_path) == own, f"{name} has its GPUs")  # noqa: B023
            assert seen.isdisjoint(numbers)
            seen.update(numbers)
        said = eventually(lambda: told(actors, "node-1"), "the agent's word on its Node")
        assert said
        assert said.reason == "DevicesUsable"
        assert agent.memory_info().rss < MOST_BYTES


def opened(tree: Tree, cgroup: str, folder: Path) -> str:
    return "".join(name for name in GPUS if tree.opens(cgroup, folder / "dev" / name))


def test_settings_that_are_missing_are_named() -> None:
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("NODE_AGENT_")
    }
    argv = [sys.executable, "-m", "node_agent", "run"]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "NODE_AGENT_NODE: Field required\nNODE_AGENT_GRES: Field required\n"
