"""The check logs different counts of CPUs in Slurm and Kubernetes once for each change."""

import asyncio
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from structlog.testing import capture_logs

from extender.node_sync.cpu_check import CpuCheck
from extender.node_view.slurm_nodes import SlurmNodes
from service.health import Health
from slurm_client.errors import RetryLater, SlurmError
from slurm_client.in_memory import InMemorySlurm, node, partition
from slurm_client.model import Node
from tests.builders import kube_node, view
from tests.eventually import until

CORES = replace(node("n1", cpus=4), cores=4, threads_per_core=2)
THREADS = replace(node("n1", cpus=8), cores=4, threads_per_core=2)


class Checked:
    """A Node n1, and Slurm's node of the same name."""

    def __init__(self, slurm_node: Node, unit: str = "1") -> None:
        self.slurm = InMemorySlurm([slurm_node], [partition("main", ["n1"], default=True)])
        self.cpus = 8
        self._health = Health()
        self.check = CpuCheck(SlurmNodes(self.slurm), self._health, self._view, Decimal(unit))

    async def logged(self) -> list[str]:
        """Runs the check, and returns the log messages."""
        with capture_logs() as lines:
            await self.check.look()
        return [line.get("where") or line["error"] for line in lines if line["event"] != "problem ended"]

    @property
    def problems(self) -> Any:
        return self._health.problems()

    async def has_problem(self) -> bool:
        return bool(self.problems)

    def _view(self) -> Any:
        return view(replace(kube_node("n1"), cpus=Decimal(self.cpus)))


async def test_wrong_cpu_unit_is_a_problem_until_fixed() -> None:
    checked = Checked(CORES)
    (line,) = await checked.logged()
    assert "SLURM_EXTENDER_CPU_UNIT=2" in line
    assert checked.problems == {"CPUs": line}
    assert await checked.logged() == []
    checked.cpus = 4
    assert await checked.logged() == []
    assert checked.problems == {}
    checked.cpus = 8
    assert await checked.logged() == [line]


async def test_matching_cpu_unit_is_no_problem() -> None:
    checked = Checked(CORES, unit="2")
    assert await checked.logged() == []
    assert checked.problems == {}


async def test_whole_cores_are_logged_and_no_problem() -> None:
    checked = Checked(THREADS)
    (line,) = await checked.logged()
    assert "whole cores of 2 CPUs" in line
    assert checked.problems == {}
    assert await checked.logged() == []


async def test_check_continues_after_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("extender.node_sync.cpu_check._RETRY_S", 0.01)
    checked = Checked(CORES)
    checked.slurm.outage(RetryLater("down"))
    with pytest.raises(SlurmError):
        await checked.check.look()
    running = asyncio.ensure_future(checked.check.run())
    await asyncio.sleep(0.05)
    assert checked.problems == {}
    checked.slurm.outage(None)
    await until(checked.has_problem, within_s=15)
    running.cancel()
