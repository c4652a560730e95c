"""A Slurm as the chart has it, but for `slurm-cluster configure`: the files are there already."""

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
    """slurmctlds and a slurmrestd, as the chart has them."""

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
        """As the StatefulSet does: each slurmctld after the last one serves. Of two that start together,
        the second would take over from a first one that is slow."""
        for each in self.controllers:
            each.start("slurmctld")
            eventually(lambda: "is UP" in self.ask("scontrol", "ping"), "slurmctld serves", 60)

    def start_rest(self) -> None:
        """slurmrestd, after its sackd."""
        self.rest.start("sackd")
        conf = self.rest.volumes["slurm"] / "conf/slurm.conf"
        eventually(conf.exists, "sackd has the configuration", 60)
        self.rest.start("slurmrestd")

    def ask(self, *command: str) -> str:
        """What a program of Slurm's says in the first slurmctld's container; "" where it fails."""
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
        """With /etc/slurm as the container `configure` leaves it."""
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
