"""Tests of the memory that the agent takes in a Pod, with every program that the agent works with."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import AsyncExitStack, asynccontextmanager, closing
from shutil import copy
from typing import TYPE_CHECKING, Any

import httpx
import psutil
import pytest

from deploy.local.kubernetes.components import bytecode_cache
from deploy.local.processes.ports import lease_ports
from node_agent.reporting.node_condition import Condition
from tests.cgroup_tree import make_devices
from tests.end_to_end.actors import pod
from tests.end_to_end.agent_account import authority, token_of_a_pod
from tests.eventually import until
from tests.node_agent.container_runtime import ContainerRuntime
from tests.node_agent.kubelet import RESOURCE, Kubelet
from wellknown.allocation import Allocation

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from deploy.local.cluster import Cluster
    from tests.cgroup_tree import Tree
    from tests.node_agent.machines import Gpus
    from tests.node_agent.node import Node

pytestmark = pytest.mark.real

MOST_BYTES = 80_000_000
"""Maximum memory of the agent (RSS), in bytes."""
NODE = "node-1"
GPUS = tuple(f"nvidia{number}" for number in range(4))
"""Devices on each Node, as many as kube-apiserver reports."""
_WITHIN_S = 20
_IN_ITS_POD = """
set -e
mount -t tmpfs none /var/run
mkdir -p /var/run/secrets/kubernetes.io/serviceaccount
mount --bind "$1" /var/run/secrets/kubernetes.io/serviceaccount
mount --bind "$2" /sys/bus/pci/devices
cp -a /dev/null /dev/urandom "$3"
mount --bind "$3" /dev
shift 3
exec "$@"
"""
"""Mounts the agent's account, and GPUs that this machine does not have, at the places where the agent
looks."""
_IMPORTS = "import node_agent.app, node_agent.kubelet.device_plugin, node_agent.machine.vendors.xid"


class Surroundings:
    """Surroundings of an agent: a machine with GPUs, a kubelet and a container runtime in a folder."""

    def __init__(self, folder: Path, sockets: Path, tree: Tree, gpus: Gpus) -> None:
        """`sockets` is a folder with a short path."""
        self.kubelet = Kubelet(sockets, listens=True)
        self.nri, self.gate = sockets / "nri.sock", sockets / "gate.sock"
        self._folder, self._sockets, self._tree, self._gpus = folder, sockets, tree, gpus
        make_devices(folder / "pods-dev", *GPUS)
        lines = (f"slurmd: Gres Name=gpu Type=h100 Count=1 ID=7 File=/dev/{name}\n" for name in GPUS)
        (folder / "printed").write_text("".join(lines))
        for _ in GPUS:
            gpus.add()

    @asynccontextmanager
    async def agent(
        self, cluster: Cluster, token: str
    ) -> AsyncIterator[tuple[psutil.Process, str, str]]:
        """Starts the agent. Yields the process, and the addresses of the health checks and of the
        metrics."""
        account = self._folder / "account"
        account.mkdir()
        copy(authority(cluster), account / "ca.crt")
        (account / "token").write_text(token)
        with closing(lease_ports(["metrics", "health"])) as lease:
            environment = self._environment(cluster, lease.ports)
            # An image has compiled Python files, and compiling takes memory, so compile before the
            # start.
            compiling = await asyncio.create_subprocess_exec(
                sys.executable, "-c", _IMPORTS, env=environment
            )
            assert await compiling.wait() == 0
            places = (account, self._gpus.pci, self._folder / "pods-dev")
            program = (sys.executable, "-m", "node_agent", "run")
            with (self._folder / "log").open("w") as log:
                agent = await asyncio.create_subprocess_exec(
                    *("unshare", "--mount", "sh", "-c", _IN_ITS_POD, "sh", *places, *program),
                    env=environment,
                    stderr=log,
                )
            try:
                health, metrics = (f"http://127.0.0.1:{lease.ports[n]}" for n in ("health", "metrics"))
                yield psutil.Process(agent.pid), health, metrics
            finally:
                agent.terminate()
                await agent.wait()
        assert agent.returncode == 0, (self._folder / "log").read_text()

    def _environment(self, cluster: Cluster, ports: dict[str, int]) -> dict[str, str]:
        server = httpx.URL(cluster.api_server_url)
        settings = {
            "NODE": NODE,
            "GRES": self._folder / "printed",
            "CGROUPS": self._tree.root,
            "BPF": self._tree.bpf,
            "NRI": self.nri,
            "DEVICE_PLUGINS": self._sockets,
            "SOCKET": self.gate,
            "LISTEN_ADDRESS": "127.0.0.1",
            "METRICS_PORT": ports["metrics"],
            "HEALTH_PORT": ports["health"],
        }
        of_pod = {"KUBERNETES_SERVICE_HOST": server.host, "KUBERNETES_SERVICE_PORT": str(server.port)}
        own = {f"NODE_AGENT_{name}": str(value) for name, value in settings.items()}
        return self._gpus.environment | bytecode_cache() | of_pod | own


@pytest.fixture
def surroundings(node: Node, gpus: Gpus, tmp_path: Path, short_folder: Path) -> Surroundings:
    return Surroundings(tmp_path, short_folder, node.tree, gpus)


async def test_agent_with_all_features_stays_below_the_memory_limit(
    shared_cluster: Cluster, surroundings: Surroundings, node: Node
) -> None:
    kubelet = surroundings.kubelet
    async with AsyncExitStack() as there, httpx.AsyncClient() as client:
        token = there.enter_context(token_of_a_pod(shared_cluster, NODE))
        runtime = await there.enter_async_context(
            ContainerRuntime.start("0.12", surroundings.nri, pods=20)
        )
        await there.enter_async_context(kubelet.runs())
        sandbox = has_job(shared_cluster, node.tree)
        there.callback(shared_cluster.kubectl, "delete", "pod", "trains", "--force", "--grace-period=0")
        agent, health, metrics = await there.enter_async_context(
            surroundings.agent(shared_cluster, token)
        )
        await until(lambda: is_ready(client, health), within_s=_WITHIN_S)
        await until(lambda: begins(runtime, sandbox), within_s=_WITHIN_S)
        await until(lambda: kubelet.is_listening)
        given, error = await runtime.creates(sandbox)
        told = await until(lambda: condition(shared_cluster), within_s=_WITHIN_S)
        shown = (await client.get(f"{metrics}/metrics")).raise_for_status().text
        taken = agent.memory_info().rss
        loaded = {each.path.rpartition("/")[2] for each in agent.memory_maps()}
    assert [device["path"] for device in given["linux"]["devices"]] == ["/dev/nvidia1"], error
    assert "CUDA_VISIBLE_DEVICES=GPU-1" in [f"{e['key']}={e['value']}" for e in given["env"]]
    assert kubelet.registered[-1][1] == RESOURCE
    assert 'node_agent_devices{gres="gpu",type="h100"} 4.0' in shown
    assert told.reason == "DevicesUsable"
    assert "libnvidia-ml.so.1" in loaded
    assert taken < MOST_BYTES


def has_job(cluster: Cluster, tree: Tree) -> dict[str, Any]:
    """Creates a Pod that runs on the Node with a GPU. Returns the Pod as the container runtime knows
    it."""
    granted = Allocation(7, NODE, "gpu:h100:1(IDX:1)").annotations()
    manifest = pod("trains", own_annotations=granted, scheduler="nobody", nodeName=NODE)
    created = cluster.kubectl("create", "-f", "-", "--output=json", stdin=json.dumps(manifest)).stdout
    metadata = json.loads(created)["metadata"]
    uid, names = metadata["uid"], {key: metadata[key] for key in ("uid", "name", "namespace")}
    tree.make(f"kubepods/burstable/pod{uid}/c")
    return {"id": uid, **names, "annotations": granted}


async def is_ready(client: httpx.AsyncClient, health: str) -> bool:
    try:
        return (await client.get(f"{health}/readyz")).status_code == 200
    except httpx.TransportError:
        return False


async def begins(runtime: ContainerRuntime, sandbox: dict[str, Any]) -> bool:
    return not await runtime.runs(sandbox)


async def condition(cluster: Cluster) -> Condition | None:
    """Returns the agent's condition on the Node."""
    return Condition.on(json.loads(cluster.kubectl("get", "node", NODE, "--output=json").stdout))
