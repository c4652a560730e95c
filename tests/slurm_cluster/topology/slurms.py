"""A real Slurm of each release, for tests of topologies."""

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
"""Releases that read topology.yaml (since 25.05)."""


@dataclass(frozen=True, slots=True)
class RealSlurm:
    """A cluster with a topology file."""

    cluster: Cluster

    @property
    def has_yaml(self) -> bool:
        return self.cluster.spec.release in HAS_YAML

    @property
    def file(self) -> Path:
        name = files.YAML if self.has_yaml else files.CONF
        return self.cluster.directory / "slurm" / "etc" / name

    def text_of(self, topology: Topology) -> str:
        """Returns the text of the topology file. The code under test makes the text."""
        return files.to_yaml(topology) if self.has_yaml else files.to_conf(topology).text

    def takes(self, text: str, kind: Kind = Kind.TREE) -> None:
        """Writes the file, and starts slurmctld with the file. Raises ClusterError with slurmctld's
        log."""
        self.file.write_text(text)
        if not self.has_yaml:
            self._plugin(kind)
        self.restart()
        self.registered(self.cluster.spec.nodes)

    def restart(self) -> None:
        """Restarts slurmctld. Raises ClusterError if slurmctld does not start."""
        if self.cluster.is_running("slurmctld"):
            self.cluster.stop("slurmctld")
        self.cluster.start("slurmctld")

    def refusal_of(self, text: str, kind: Kind = Kind.TREE) -> str:
        """Returns slurmctld's error for a text, or "" if slurmctld starts with the text."""
        try:
            self.takes(text, kind)
        except ClusterError as error:
            return str(error)
        return ""

    def shown(self) -> Topology:
        """Returns the topology that slurmctld uses."""
        return topology_of(self.cluster.run_slurm("scontrol", "show", "topology").stdout)

    def nodes_for(self, *options: str) -> tuple[str, ...]:
        """Starts an immediate job with these options, cancels the job, and returns the job's nodes;
        empty if the job did not start."""
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
        """Returns the state of each node in sinfo."""
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
