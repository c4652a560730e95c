"""The leader: the replica that places Pods, controls nodes and pools, and runs the audit."""

import asyncio
from collections.abc import Callable, Iterable
from functools import partial

from extender.audit.auditor import PeriodicAudit
from extender.audit.compare import Finding, shared_ids
from extender.audit.reader import Reader
from extender.execution import startup
from extender.execution.claim_watch import PARTS as CLAIMS
from extender.execution.claim_watch import ClaimWatch
from extender.execution.dispatcher import Dispatcher
from extender.execution.job_watch import PART as JOBS
from extender.execution.job_watch import JobWatch
from extender.execution.pod_watch import PodWatch
from extender.leader.replica import Replica
from extender.node_sync.controller import PARTS, Leadership, NodeController
from extender.node_sync.drain_decision import drain_reason
from extender.node_sync.lingering_check import LingeringCheck
from extender.node_sync.lingering_writer import PART as LINGERING_PART
from extender.node_sync.lingering_writer import LingeringWriter
from extender.node_sync.overlaps import Overlaps
from extender.node_sync.prolog_gate import Gate
from extender.placement.ledger import Ledger
from extender.placement.transitions.kept_back import UnbindablePods
from extender.pools.controller import PARTS as POOLS
from extender.pools.controller import Leadership as PoolLeadership
from extender.pools.controller import PoolController
from extender.pools.demand_reader import PART as DEMAND
from extender.pools.demand_reader import DemandReader
from extender.pools.member import placeholder_cpus
from extender.record.config import PlacementConfig
from extender.record.events import ClusterObserved, Event, JobRead
from extender.record.placeholder import Placeholder
from extender.telemetry.capacity import CapacityNow
from extender.telemetry.leader_states import Sources
from extender.turns.eviction_limiter import EvictionLimiter
from extender.unmanaged.adopter import PART as ADOPTION
from extender.unmanaged.adopter import Adopter
from extender.unmanaged.adoption import Adoptions, adoptable
from slurm_client.model import Job
from slurm_client.model import Node as SlurmNode

UNBINDABLE = "Pods that cannot be bound"
_START = "start"
_LOST_KEYS = "AdminComment"
_SHARED_IDS = "job ids of other clusters"
_THROTTLED = "eviction limiter"
_OWN_PARTS = (
    *(JOBS, "recovery", "watch of Pods", _THROTTLED, _LOST_KEYS, _SHARED_IDS, UNBINDABLE, ADOPTION),
    *(*CLAIMS, *PARTS, *POOLS, DEMAND, LINGERING_PART),
)
"""The parts of the health report that only a leader has."""


class Leader:
    """The work of this replica as the leader. `place` runs while this replica leads."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._jobs: JobWatch | None = None
        self._ledger: Ledger | None = None
        translation = replica.settings.translation
        self._feed: Callable[[Event], None] | None = None
        self.overlaps = Overlaps(
            replica.slurm, replica.view, self.report, replica.settings.placeholder_ids
        )
        self.lingering = LingeringCheck(replica.slurm, replica.view, replica.cluster.lingering_notes)
        self.gate = Gate(
            *(replica.kubernetes, replica.slurm, translation, replica.view),
            *(self.ledger, self.poll_now),
            overlaps=self.overlaps,
            lingering=self.lingering,
        )

    def ledger(self) -> Ledger | None:
        """Returns the ledger. Returns None while another replica may lead, because the ledger may then
        be out of date."""
        return self._ledger if self._replica.lease.is_held else None

    def poll_now(self, job_id: int) -> None:
        """Makes the job watch look at a job now. Does nothing if this replica does not lead."""
        if self._jobs is not None:
            self._jobs.poll_now(job_id)

    def report(self, uid: str, job: Job) -> None:
        """Passes a newly read job to the ledger. Does nothing if this replica does not lead."""
        if self._feed is not None:
            self._feed(JobRead(uid, job))

    def stand_by(self) -> None:
        """Notes that another replica leads. This replica is ready after the first read of Slurm and
        Kubernetes, because this replica can then verify bindings."""
        if self._replica.cluster.loaded:
            self._replica.health.ready = True

    async def place(self) -> None:
        """Recovers the ledger, then places Pods while this replica leads."""
        try:
            await self._lead()
        finally:  # a replica that no longer leads does not report a leader's problems
            for part in _OWN_PARTS:
                self._replica.health.says(part, None)
            self._jobs = self._ledger = self._feed = None

    async def _lead(self) -> None:
        replica = self._replica
        claims = ClaimWatch(replica.kubernetes, replica.health)
        pods = PodWatch(replica.kubernetes, replica.translation, replica.health, replica.policy, claims)
        view = await replica.insist(_START, replica.cluster.load, pods)
        config = replica.settings.placement_config(view.cluster, replica.cluster.kill_wait_s)
        observe = replica.telemetry.placement.observe
        notes = LingeringWriter(
            replica.kubernetes, replica.cluster.lingering_notes, replica.lease.held, replica.health
        )
        observers = observe, self._throttled, self._lost_keys, self._unbindable, notes.lingers
        ledger = Ledger(config, *observers)
        dispatcher = self._dispatcher(ledger)
        recover = partial(self._recover, pods, config, dispatcher)
        adoptions = await replica.insist("recovery", recover, pods)
        replica.health.ready = True
        jobs = JobWatch(ledger, replica.slurm, replica.health, replica.settings.poll_interval_s)
        # After these assignments, a call from Slurm about a job (a push) has an effect.
        self._jobs, self._ledger, self._feed = jobs, ledger, dispatcher.feed
        nodes, pools = self._node_controller(ledger), await self._pool_controller(ledger, adoptions)
        demand = self._demand_reader()
        with (
            replica.telemetry.placement.leading(
                Sources(
                    *(lambda: ledger.placeholders, lambda: nodes.tally),
                    *(lambda: ledger.rejecting_nodes.closures, lambda: adoptions.tally),
                    *(lambda: pools.states, lambda: demand.demand),
                    CapacityNow(lambda: replica.slurm_nodes.newest, replica.view),
                    replica.view,
                    reports_jobs=replica.settings.job_info,
                )
            ),
            replica.cluster.telling(lambda view: dispatcher.feed(ClusterObserved(view))),
        ):
            dispatcher.feed(ClusterObserved(replica.view()))
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(dispatcher.run())
                tasks.create_task(pods.run(dispatcher))
                tasks.create_task(jobs.run(dispatcher))
                tasks.create_task(nodes.run())
                tasks.create_task(notes.run())
                if replica.pools.file is not None:
                    tasks.create_task(pools.run())
                    tasks.create_task(demand.run())
                tasks.create_task(self._periodic_audit(ledger, config, adoptions).run(dispatcher))
                if replica.settings.translation.adopts:
                    tasks.create_task(self._adopter(adoptions, config).run(dispatcher))

    async def _recover(
        self, pods: PodWatch, config: PlacementConfig, dispatcher: Dispatcher
    ) -> Adoptions:
        replica, translation = self._replica, self._replica.settings.translation
        found = await pods.list()
        dispatcher.feed(ClusterObserved(replica.view()))
        jobs = await startup.recover(
            found,
            replica.slurm,
            replica.kubernetes,
            config,
            dispatcher,
            adoptable=lambda manifest: adoptable(manifest, translation) is not None,
            adopted=replica.capacity.adopted_pods,
        )
        observe, policy = replica.telemetry.placement.adopted, replica.policy
        return Adoptions(config, jobs, observe, lambda: policy.policy)

    def _adopter(self, adoptions: Adoptions, config: PlacementConfig) -> Adopter:
        own = self._replica
        return Adopter(adoptions, own.capacity, own.slurm, own.health, config, own.view)

    def _periodic_audit(
        self, ledger: Ledger, config: PlacementConfig, adoptions: Adoptions
    ) -> PeriodicAudit:
        own, settings = self._replica, self._replica.settings
        systems = own.slurm, own.slurm_nodes, own.kubernetes
        return PeriodicAudit(
            Reader(*systems, config, settings.translation, own.job_ids.note),
            ledger,
            own.view,
            self._audited,
            settings.audit_interval_s,
            own.health,
            jobs_of_adopted_pods=lambda: adoptions.job_ids,
        )

    def _audited(self, findings: Iterable[Finding]) -> None:
        found = tuple(findings)
        self._replica.telemetry.placement.audited(found)
        self._replica.health.says(_SHARED_IDS, shared_ids(found, self._replica.settings.placeholder_ids))

    def _unbindable(self, pods: UnbindablePods) -> None:
        self._replica.health.says(UNBINDABLE, pods.words)

    def _throttled(self, eviction_limiter: EvictionLimiter, record: Placeholder | None) -> None:
        self._replica.health.says(_THROTTLED, eviction_limiter.words, alarm=True)
        self._replica.telemetry.placement.throttled(eviction_limiter, record)

    def _lost_keys(self, words: str | None) -> None:
        self._replica.health.says(_LOST_KEYS, words, alarm=True)

    def _dispatcher(self, ledger: Ledger) -> Dispatcher:
        own = self._replica
        return Dispatcher(
            ledger,
            own.slurm,
            own.kubernetes,
            own.telemetry.placement,
            own.settings.slurm_concurrency,
            slurm_nodes=own.slurm_nodes,
            allowed=own.lease.held,
        )

    async def _pool_controller(self, ledger: Ledger, adoptions: Adoptions) -> PoolController:
        own = self._replica
        external = (await own.slurm.connect()).external_jobs

        def stays(node: str, slurm: SlurmNode) -> int:
            """Returns the number of a node's CPUs whose jobs survive a restart of slurmd. Only external
            jobs survive, because the process of a batch job ends with slurmd."""
            if not external:
                return 0
            adopted = adoptions.cpus_on(node, slurm.cpus_per_core)
            return placeholder_cpus(ledger.holding(node), node, slurm) + adopted

        cause = partial(drain_reason, drain_settings=own.settings.drain_settings)
        leadership = PoolLeadership(
            *(lambda: own.pools.content, own.settings.pools_namespace, own.lease.held, stays, cause)
        )
        return PoolController(
            own.kubernetes, own.slurm, own.slurm_nodes, own.cluster, leadership, own.health
        )

    def _demand_reader(self) -> DemandReader:
        own = self._replica
        pools = lambda: own.pools.content  # noqa: E731
        return DemandReader(own.slurm, own.slurm_nodes, own.cluster, pools, own.health)

    def _node_controller(self, ledger: Ledger) -> NodeController:
        own = self._replica
        return NodeController(
            own.kubernetes,
            own.slurm,
            own.slurm_nodes,
            own.cluster,
            Leadership(ledger, own.lease.held, self.gate.in_the_way),
            own.health,
            drain_settings=own.settings.drain_settings,
        )
