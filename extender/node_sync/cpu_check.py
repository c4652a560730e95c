"""Checks at the start, and every ten minutes, whether Slurm and Kubernetes count CPUs alike."""

from collections.abc import Callable
from decimal import Decimal

import structlog

from extender.node_sync.cpu_counts import disagreements, whole_cores
from extender.node_view.slurm_nodes import SlurmNodes
from extender.node_view.view import ClusterView
from service.health import Health
from service.periodic import periodically
from slurm_client.errors import SlurmError

_INTERVAL_S = 600.0
_RETRY_S = 5.0

log = structlog.get_logger()


class CpuCheck:
    """Checks the counts of CPUs. /readyz shows the nodes with different counts. A log line, and not
    /readyz, names the nodes on which jobs get whole cores."""

    def __init__(
        self, slurm_nodes: SlurmNodes, health: Health, view: Callable[[], ClusterView], unit: Decimal
    ) -> None:
        self._slurm_nodes = slurm_nodes
        self._health = health
        self._view = view
        self._unit = unit
        self._logged: tuple[str, ...] = ()

    async def run(self) -> None:
        """Repeats the check for ever. The view must already be loaded. Other parts of the program report
        Slurm's errors."""
        await periodically(self.look, _INTERVAL_S, outlives=SlurmError, retry=_RETRY_S)

    async def look(self) -> None:
        """Checks all nodes once. Raises SlurmError."""
        nodes = (await self._slurm_nodes.read(_INTERVAL_S)).nodes
        problem = disagreements(self._view(), nodes, self._unit)
        self._health.says("CPUs", "; ".join(problem) or None)
        sentences = whole_cores(nodes, self._unit)
        for sentence in sentences:
            if sentence not in self._logged:
                log.warning("CPU counts differ", where=sentence)
        self._logged = sentences
