"""Runs the chart's Slurm without `slurm-cluster configure`: this module writes the configuration files
before Slurm starts."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import pytest

from deploy.local.chart import Rendered
from deploy.local.slurm.tree import tree_place
from deploy.local.spec import ClusterSpec
from tests.eventually import eventually
from tests.slurm_chart.pods import Machine, Pod, secret
from tests.slurm_chart.rendering import files

SLURM_UID = 64030


def tree(release: str) -> Path:
    place = tree_place(ClusterSpec(release=release))
    if not place.exists():
        how = f"python -m deploy.local prepare --release {release}"
        pytest.skip(f"Slurm {release} is not unpacked here: {how}")
    return place


class Slurm:
    """The chart's slurmctlds and its slurmrestd."""

    def __init__(self, where: Machine, chart: Rendered) -> None:
        self.machine, self.chart = where, chart
        self.keys = {name: secrets.token_bytes(64) for name in ("slurm.key", "jwt_hs256.key")}
        state = where.folder / "state"
        state.mkdir()
        os.chown(state, SLURM_UID, SLURM_UID)
        count = chart.find("StatefulSet", "slurmctld")["spec"]["replicas"]
        self.controllers = [self._controller(index, state) for index in range(count)]
        self.rest = Pod.of(
            where,
            chart,
            ("Deployment", "slurmrestd"),
            "slurmrestd",
            keys=secret(where.folder / "rest-keys", 64031, {"slurm.key": self.keys["slurm.key"]}),
        )

    def start(self) -> None:
        """Starts the slurmctlds one after the other, as the StatefulSet does: each slurmctld starts when
        the slurmctld before serves. If both started together, the second slurmctld might lead before the
        first slurmctld serves."""
        for each in self.controllers:
            each.start("slurmctld")
            eventually(lambda: "is UP" in self.ask("scontrol", "ping"), "slurmctld serves", 60)

    def start_rest(self) -> None:
        """Starts sackd and then slurmrestd."""
        self.rest.start("sackd")
        conf = self.rest.volumes["slurm"] / "conf/slurm.conf"
        eventually(conf.exists, "sackd has the configuration", 60)
        self.rest.start("slurmrestd")

    def ask(self, *command: str) -> str:
        """Returns the output of a Slurm program in the first slurmctld's container; "failed: ..." if the
        program fails."""
        try:
            return self.controllers[0].run("slurmctld", *command)
        except AssertionError as failed:
            return f"failed: {failed}"

    def said(self) -> str:
        return "".join(each.log.read_text() for each in self.controllers if each.log.exists())

    def token(self) -> str:
        said = self.ask("scontrol", "token", "username=slurm", "lifespan=2592000")
        return said.removeprefix("SLURM_JWT=").strip()

    def _controller(self, index: int, state: Path) -> Pod:
        """Returns a Pod of slurmctld whose /etc/slurm already has the files that the container
        `configure` would write."""
        host = f"slurmctld-{index}"
        etc = self.machine.folder / f"etc-{index}"
        etc.mkdir()
        for name, content in files(self.chart).items():
            (etc / name).write_text(content)
            (etc / name).chmod(0o755)
        for name, key in self.keys.items():
            (etc / name).write_bytes(key)
            (etc / name).chmod(0o600)
        for path in (etc, *etc.iterdir()):
            os.chown(path, SLURM_UID, SLURM_UID)
        workload = ("StatefulSet", "slurmctld")
        return Pod.of(self.machine, self.chart, workload, host, configuration=etc, state=state)
