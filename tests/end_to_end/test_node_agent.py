"""Tests of the node agent as a program, on real systems: a Pod can open only devices that Slurm
granted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING

import httpx
import pytest

from deploy.local.processes.ports import lease_ports
from deploy.local.spec import ClusterSpec
from node_agent.reporting import node_devices
from node_agent.reporting.job_files import JobFiles
from node_agent.reporting.node_condition import Condition
from slurm_client import gres
from tests.cgroup_tree import Tree, make_devices, mounted
from tests.end_to_end.actors import Actors, fetch
from tests.end_to_end.agent_account import token_of_a_pod, write_kubeconfig
from tests.eventually import eventually
from wellknown.allocation import Allocation

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.real

GPUS = "abcd"
"""GPUs of a node, by the names of the files, in Slurm's order."""
CORES = ClusterSpec().cpus_per_node


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Tree]:
    with mounted(tmp_path) as found:
        found.make("kubepods/burstable")
        yield found


@contextmanager
def environment_of(
    node: str, actors: Actors, tree: Tree, folder: Path, parts: tuple[str, int] = ("shard", 0)
) -> Iterator[tuple[dict[str, str], str]]:
    """Yields the settings of a Node's agent, with the token of an agent's Pod, and the URL of the
    agent's health check. `parts` is the name and the number of a GPU's parts."""
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
        token_of_a_pod(actors.cluster, node) as token,
    ):
        write_kubeconfig(kubeconfig, actors.cluster, token)
        settings = {
            "NODE": node,
            "GRES": str(folder / "gres"),
            "KUBECONFIG": str(kubeconfig),
            "CGROUPS": str(tree.root),
            "BPF": str(tree.bpf),
            "NRI": "",  # kwok plays the kubelet of this Node
            "DEVICE_PLUGINS": "",
            "SOCKET": str(folder / "agent.sock"),
            "LISTEN_ADDRESS": "127.0.0.1",
            "METRICS_PORT": str(lease.ports["metrics"]),
            "HEALTH_PORT": str(lease.ports["health"]),
        }
        environment = os.environ | {f"NODE_AGENT_{name}": value for name, value in settings.items()}
        yield environment, f"http://127.0.0.1:{lease.ports['health']}/readyz"


@contextmanager
def agent_in(environment: dict[str, str], folder: Path) -> Iterator[None]:
    """Runs an agent, with a sysfs that has as many cores as the cluster's nodes declare."""
    system = folder / "system"
    for core in range(CORES):
        (place := system / f"cpu/cpu{core}/topology").mkdir(parents=True, exist_ok=True)
        (place / "core_cpus_list").write_text(f"{core}\n")
    (system / "cpu/online").write_text(f"0-{CORES - 1}\n")
    argv = ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" /sys/devices/system && exec "$@"']
    argv += [str(system), sys.executable, "-m", "node_agent", "run"]
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(argv, env=environment, stderr=log) as agent,
    ):
        try:
            yield
        finally:
            agent.terminate()
    assert agent.returncode == 0, (folder / "log").read_text()


def command(name: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "node_agent", name]
    return subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)


def is_ready(url: str) -> bool:
    with suppress(httpx.TransportError):
        return fetch(url).status_code == 200
    return False


def told(actors: Actors, node: str) -> tuple[Condition | None, str | None]:
    """Returns the condition and the annotation from the agent on the Node."""
    shown = json.loads(actors.cluster.kubectl("get", "node", node, "--output=json").stdout)
    return Condition.on(shown), node_devices.text_on(shown)


def all_told(actors: Actors, node: str, folder: Path) -> tuple[Condition, str] | None:
    """Returns the condition and the annotation. Returns None until the agent has reported the devices of
    the folder."""
    condition, devices = told(actors, node)
    return (condition, devices) if condition and devices and str(folder) in devices else None


def granted(actors: Actors, name: str) -> tuple[str, tuple[int, ...]]:
    """Returns the uid of a Pod, and the numbers of the job's GPUs."""
    metadata = (actors.see(name) or {})["metadata"]
    allocation = Allocation.parse(metadata["annotations"])
    assert allocation is not None
    return metadata["uid"], gres.numbers(allocation.gres).get("gpu", ())


def test_pods_open_only_the_gpus_granted_by_slurm(actors: Actors, tree: Tree, tmp_path: Path) -> None:
    on_one_node = {"annotations": {"required-nodes": "node-1"}}
    for name, gpus in (("one", 1), ("two", 2), ("none", 0)):
        actors.create(name, gpus=gpus, **on_one_node)
        assert actors.bound(name) == "node-1"
    with (
        environment_of("node-1", actors, tree, tmp_path) as (environment, readyz),
        agent_in(environment, tmp_path),
    ):
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
        shown = command("status", environment | {"COLUMNS": "300"})
        assert (shown.returncode, actors.full("one") in shown.stdout) == (0, True), shown.stderr
        said = eventually(lambda: all_told(actors, "node-1", tmp_path), "the agent's word on its Node")
        assert said
        condition, devices = said
        assert condition.reason == "DevicesUsable"
        dev = tmp_path / "dev"
        assert json.loads(devices)["devices"] == [
            {"name": "gpu", "index": number, "type": "h100", "files": [str(dev / name)]}
            for number, name in enumerate(GPUS)
        ]


def test_removed_agent_leaves_nothing_in_the_kernel_or_on_its_node(
    actors: Actors, tree: Tree, tmp_path: Path
) -> None:
    """The removal runs three times. kube-apiserver does not answer the first run, a file blocks the
    second run, and the third run succeeds."""
    container = "kubepods/burstable/pod0f5cbb08-9b1c-4f33-a4a7-0c8e3f1f5d1a/c"
    tree.make(container)
    with environment_of("node-1", actors, tree, tmp_path) as (environment, readyz):
        with agent_in(environment, tmp_path):
            eventually(lambda: is_ready(readyz), "the agent ready")
            said = eventually(
                lambda: all_told(actors, "node-1", tmp_path), "the agent's word on its Node"
            )
        assert opened(tree, container, tmp_path) == ""
        with closing(lease_ports(["nobody"])) as nobody:
            away = tmp_path / "away"
            text, server = (tmp_path / "kubeconfig").read_text(), actors.cluster.api_server_url
            away.write_text(text.replace(server, f"https://127.0.0.1:{nobody.ports['nobody']}"))
            done = command("remove", environment | {"NODE_AGENT_KUBECONFIG": str(away)})
        words = "the guard is removed, but the agent's reports on Node node-1 are not: "
        assert (done.returncode, done.stderr.startswith(words)) == (2, True), done.stderr
        assert opened(tree, container, tmp_path) == GPUS
        assert told(actors, "node-1") == said
        jobs = tmp_path / "jobs"
        jobs.write_text("a file in the place of the folder")
        done = command("remove", environment | {"NODE_AGENT_JOB_MAPPING": str(jobs)})
        words = f"all is removed except the lines in {jobs}: "
        assert (done.returncode, done.stderr.startswith(words)) == (2, True), done.stderr
        assert told(actors, "node-1") == (None, None)
        assert not tree.bpf.exists()
        jobs.unlink()
        JobFiles(jobs).write({"0": [7]}, [7])
        done = command("remove", environment | {"NODE_AGENT_JOB_MAPPING": str(jobs)})
        assert (done.returncode, done.stdout + done.stderr) == (0, "")
        assert (jobs / "0").read_text() == ""


def opened(tree: Tree, cgroup: str, folder: Path) -> str:
    return "".join(name for name in GPUS if tree.opens(cgroup, folder / "dev" / name))


def test_error_names_the_missing_settings() -> None:
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("NODE_AGENT_")
    }
    argv = [sys.executable, "-m", "node_agent", "run"]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    words = "not set, and without a default"
    assert done.stderr == f"NODE_AGENT_NODE: {words}\nNODE_AGENT_GRES: {words}\n"
