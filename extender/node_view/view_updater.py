"""Updates the read model: watches Nodes, and reads slurm.conf periodically."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import structlog

from extender.node_view.lingering_notes import LingeringNotes
from extender.node_view.node_conditions import NodeStatus
from extender.node_view.uncounted_memory import FIX, uncounted_memory
from extender.node_view.view import ClusterView
from extender.pod_request.constraints.node_constraints import Node
from kubernetes_client.protocol import Kubernetes, Manifest
from kubernetes_client.watch import ResourceWatch
from service.health import Health
from service.periodic import periodically
from slurm_client.errors import NeedsOperator, SlurmError
from slurm_client.protocol import Slurm
from wellknown.node_mapping import problem

log = structlog.get_logger()

_CONFIGURATION_S = 15.0
_RETRY_S = 5.0
NAMES = "Node names"
"""The part of the health report about Slurm nodes that several Nodes name."""
MEMORY = "SelectTypeParameters"
"""The part of the health report about memory that Slurm does not count."""


@dataclass(frozen=True, slots=True)
class SlurmDefaults:
    """Slurm's settings, as an administrator gives them to the extender, because an older slurmrestd does
    not report these settings. None means unknown."""

    default_partition: str | None = None
    preempt_type: str | None = None
    kill_wait_s: int = 30
    """Slurm's default."""
    graceful_qos: tuple[str, ...] = ()
    """QOS with a GraceTime, which slurmrestd does not report without slurmdbd."""
    max_job_count: int = 10_000
    """Slurm's default."""
    select_type_parameters: tuple[str, ...] = ()
    """SelectTypeParameters, empty if unknown."""


class ClusterViewUpdater:
    """Keeps the read model up to date. `view` is the newest version."""

    def __init__(
        self,
        kubernetes: Kubernetes,
        slurm: Slurm,
        health: Health,
        name_label: str,
        defaults: SlurmDefaults = SlurmDefaults(),
        tiers: tuple[str, ...] = (),
    ) -> None:
        """`tiers` are the labels of `ClusterView.tiers`."""
        self._watch = ResourceWatch(kubernetes, "nodes", None, partial(health.says, "watch of Nodes"))
        self._kubernetes = kubernetes
        self._slurm = slurm
        self._health = health
        self._label = name_label
        self._defaults = defaults
        self.view = ClusterView(tiers=tiers)
        self._select_type_parameters = defaults.select_type_parameters
        self._select_type: str | None = None
        self.kill_wait_s = defaults.kill_wait_s
        """Slurm's KillWait, as last read."""
        self.slurmd_timeout_s = 300
        """Slurm's SlurmdTimeout, as last read; Slurm's default if slurmrestd reports none."""
        self.node_statuses: dict[str, NodeStatus] = {}
        """The status of each Node, by the Node's name: the parts that placement does not use."""
        self.lingering_notes = LingeringNotes()
        self.nodes_changed = asyncio.Event()
        """Set whenever a Node in the view, or the status of a Node, changes."""
        self.loaded = False
        self._loading = asyncio.Lock()
        self._tell: Callable[[ClusterView], None] = lambda _: None

    async def load(self) -> ClusterView:
        """Reads Slurm and Kubernetes, unless an earlier call has read both. Returns the newest version
        of the read model. Raises the errors of both systems."""
        async with self._loading:
            if not self.loaded:
                await self._load()
                self.loaded = True
        return self.view

    def read(self, manifest: Manifest) -> tuple[Node, NodeStatus]:
        return Node.parse(manifest, self._label, time.time()), NodeStatus.parse(manifest)

    @contextmanager
    def telling(self, tell: Callable[[ClusterView], None]) -> Iterator[None]:
        """Calls `tell` with each new version while the context is open."""
        self._tell = tell
        try:
            yield
        finally:
            self._tell = lambda _: None

    async def _load(self) -> None:
        listed = await self._watch.list_as(self.read)
        for node, node_status in listed:
            self._follow_notes(node, node_status)
        self.node_statuses = {node.name: node_status for node, node_status in listed}
        self.view = replace(
            self.view,
            cluster=await self._kubernetes.cluster_uid(),
            nodes={node.name: node for node, _ in listed},
            graceful_qos=frozenset(self._defaults.graceful_qos),
        )
        self._judge_names()
        await self._read_configuration()
        await self._read_partitions()
        self._judge_memory()

    async def _read_configuration(self) -> None:
        """Reads Slurm's configuration. Later calls read the configuration again, because an
        administrator may change slurm.conf and restart slurmctld."""
        conf = await self._slurm.configuration()
        if conf.kill_wait_s is not None:
            self.kill_wait_s = conf.kill_wait_s
        if conf.slurmd_timeout_s is not None:
            self.slurmd_timeout_s = conf.slurmd_timeout_s
        if conf.select_type_parameters is not None:
            self._select_type_parameters = conf.select_type_parameters
        self._select_type = conf.select_type
        most_jobs = self._defaults.max_job_count if conf.max_job_count is None else conf.max_job_count
        preempt_type = self._defaults.preempt_type if conf.preempt_type is None else conf.preempt_type
        self.view = replace(
            self.view,
            preemption=preempt_type not in ("", "none", "preempt/none"),
            qos_preemption=preempt_type in (None, "preempt/qos"),
            max_job_count=most_jobs,
        )

    async def run(self) -> None:
        """Follows Slurm and Kubernetes forever. The caller must call `load` before."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow_nodes())
            tasks.create_task(self._follow_configuration())

    async def _follow_nodes(self) -> None:
        async for change in self._watch.changes():
            node, node_status = self.read(change.manifest)
            after = None if change.gone else node
            if after != self.view.nodes.get(node.name):  # most changes concern the status only
                before = self.view.names
                self.view = self.view.with_node(node.name, after)
                self._tell(self.view)
                self.nodes_changed.set()
                if self.view.names is not before:
                    self._judge_names()
            if change.gone:
                self.lingering_notes.drop_node(node.name)
            else:
                self._follow_notes(node, node_status)
            self._note(node.name, None if change.gone else node_status)

    def _follow_notes(self, node: Node, node_status: NodeStatus) -> None:
        """Takes the notes of a new version of a Node. If the annotation has a new problem, logs the
        problem."""
        lingering, before = node_status.lingering, self.node_statuses.get(node.name, NodeStatus())
        self.lingering_notes.follow_node(node.name, lingering.notes, away=node.away)
        if lingering.problem and lingering.problem != before.lingering.problem:
            log.warning("invalid notes on a Node", node=node.name, error=lingering.problem)

    async def _follow_configuration(self) -> None:
        await periodically(
            self._read_slurm,
            _CONFIGURATION_S,
            outlives=SlurmError,
            retry=_RETRY_S,
            report=partial(self._health.says, "Slurm's partitions"),
            pauses_first=True,  # `load` has just read the configuration
        )

    async def _read_slurm(self) -> None:
        before = self.view
        await self._read_configuration()
        await self._read_partitions()
        self._judge_memory()
        if self.view != before:
            self._tell(self.view)

    async def _read_partitions(self) -> None:
        partitions = {p.name: p for p in await self._slurm.partitions()}
        default = self._defaults.default_partition
        if default is not None and not (await self._slurm.connect()).default_partition:
            if default not in partitions:
                known = ", ".join(partitions)
                raise NeedsOperator(
                    f"SLURM_EXTENDER_DEFAULT_PARTITION is {default}; Slurm has the partitions {known}"
                )
            partitions[default] = replace(partitions[default], default=True)
        self.view = replace(self.view, partitions=partitions)

    def _judge_memory(self) -> None:
        words = uncounted_memory(self._select_type_parameters, self.view, self._select_type)
        self._health.says(MEMORY, words and f"{words}. {FIX}", alarm=True)

    def _judge_names(self) -> None:
        self._health.says(NAMES, problem(self.view.names, self._label))

    def _note(self, node: str, node_status: NodeStatus | None) -> None:
        if node_status != self.node_statuses.get(node):
            self.nodes_changed.set()
        if node_status is None:
            self.node_statuses.pop(node, None)
        else:
            self.node_statuses[node] = node_status
