"""Registers a node in Slurm, and then registers the node again under another address. A slurmd Pod may
get another address in the same way. `unshare --net python -m tests.slurmd_pods.another_address RELEASE
DIRECTORY` prints each address, and the output of a job on the node at this address.

The program runs in a separate network, with loopback only. slurmd calls slurmctld from an address that
the route determines. Slurm takes this source address as the node's address.
"""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path

from deploy.local.cluster import Cluster
from deploy.local.spec import ClusterSpec
from tests.eventually import eventually

NODE = "dynamic-1"
ADDRESSES = ("127.0.0.2", "127.0.0.3")
_OF_ITS_NAME = "10.255.255.1"
"""Address outside 127.0.0.0/8. Without such an address, glibc resolves no names (AI_ADDRCONFIG)."""


def ip(*command: str) -> None:
    subprocess.run(["ip", *command], check=True)


def seen(cluster: Cluster) -> str:
    """Returns the node's address and state as sinfo reports them; "" if Slurm does not know the node."""
    return cluster.run_slurm("sinfo", "-hN", "-n", NODE, "-o", "%o %T").stdout.strip()


def main(release: str, directory: Path) -> None:
    ip("link", "set", "lo", "up")
    ip("address", "add", f"{_OF_ITS_NAME}/32", "dev", "lo")
    spec = ClusterSpec(
        nodes=1,
        dynamic_nodes=1,
        kubernetes=False,
        extender=False,
        release=release,
        slurm_conf=("CommunicationParameters=block_null_hash",),  # slurmd listens at each address
    )
    with Cluster.up(spec, directory) as cluster:
        for address in ADDRESSES:
            ip("route", "replace", "local", "127.0.0.1", "dev", "lo", "src", address, "table", "local")
            cluster.register(NODE, "CPUs=1 RealMemory=1000 Feature=dynamic")
            is_idle = partial(_is, cluster, f"{address} idle")
            eventually(is_idle, f"it is idle at {address}", 20)
            said = cluster.run_slurm("srun", f"-w{NODE}", "-pdynamic", "--mem=10", "id", "-un").stdout
            sys.stdout.write(f"{address} {said}")
            eventually(is_idle, "slurmctld knows that the job is over", 20)
            cluster.kill(f"slurmd-{NODE}")
            ip("route", "add", "blackhole", address, "table", "local")


def _is(cluster: Cluster, wanted: str) -> bool:
    return seen(cluster) == wanted


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
