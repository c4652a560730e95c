"""A real Slurm of each release, which is given topologies."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from deploy.local.cluster import Cluster
from deploy.local.errors import ClusterError
from slurm_client.hostlist import expand
from slurm_cluster.topology import files
from slurm_cluster.topology.model import Kind, Topology
from slurm_cluster.topology.running import topology_of
from tests.eventually import eventually

HAS_YAML = frozenset({"26.05"})
"""Releases that read topology.yaml (25.05 and later)."""


@dataclass(frozen=True, slots=True)
class RealSlurm:
    """A cluster, and its topology file."""

    cluster: Cluster

    @property
    def has_yaml(self) -> bool:
        return self.cluster.spec.release in HAS_YAML

    @property
    def file(self) -> Path:
        name = files.YAML if self.has_yaml else files.CONF
        return self.cluster.directory / "slurm" / "etc" / name

    def text_of(self, topology: Topology) -> str:
        """The file's text as this package writes it."""
        return files.to_yaml(topology) if self.has_yaml else files.to_conf(topology).text

    def takes(self, text: str, kind: Kind = Kind.TREE) -> None:
        """slurmctld starts with this text. Raises ClusterError with its log."""
        self.file.write_text(text)
        if not self.has_yaml:
            self._plugin(kind)
        self.restart()
        self.registered(self.cluster.spec.nodes)

    def restart(self) -> None:
        """Raises ClusterError where slurmctld does not start."""
        if self.cluster.is_running("slurmctld"):
            self.cluster.stop("slurmctld")
        self.cluster.start("slurmctld")

    def refusal_of(self, text: str, kind: Kind = Kind.TREE) -> str:
        """What slurmctld says of a text that it does not start with."""
        try:
            self.takes(text, kind)
        except ClusterError as error:
            return str(error)
        return ""

    def shown(self) -> Topology:
        """What it works by."""
        return topology_of(self.cluster.run_slurm("scontrol", "show", "topology").stdout)

    def nodes_for(self, *options: str) -> tuple[str, ...]:
        """The nodes of a job that is allowed to start at once; none: it is not."""
        asked = ("--no-shell", "--exclusive", "--immediate=8", *options)
        try:
            told = self.cluster.run_slurm("salloc", *asked)
        except ClusterError:
            return ()
        found = re.search(r"job allocation (\d+)", told.stderr + told.stdout)
        assert found is not None, told
        nodes = self.cluster.run_slurm("squeue", "--noheader", f"--jobs={found[1]}", "--format=%N")
        self.cluster.run_slurm("scancel", found[1])
        eventually(
            lambda: not self.cluster.run_slurm("squeue", "--noheader").stdout.strip(), within_s=30
        )
        return expand(nodes.stdout.strip())

    def states(self) -> dict[str, str]:
        """sinfo's word for each node."""
        listed = self.cluster.run_slurm("sinfo", "--noheader", "--Node", "--format=%N %T").stdout
        return dict(line.split() for line in listed.splitlines())

    def _plugin(self, kind: Kind) -> None:
        conf = self.cluster.directory / "slurm" / "etc" / "slurm.conf"
        kept = [line for line in conf.read_text().splitlines() if "TopologyPlugin" not in line]
        conf.write_text("\n".join([*kept, f"TopologyPlugin=topology/{kind}", ""]))

    def registered(self, count: int) -> None:
        """Waits until `count` nodes are idle."""
        self.until_states(lambda states: [*states.values()].count("idle") >= count)

    def until_states(self, holds: Callable[[dict[str, str]], object]) -> None:
        eventually(self.states, within_s=30, holds=holds)
