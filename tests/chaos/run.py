"""Carries out a run: starts a cluster and a workload, attacks the cluster in storms, and reports."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from deploy.local.cluster import Cluster
from deploy.local.spec import ClusterSpec
from tests.administrator import Kubernetes
from tests.chaos import plan
from tests.chaos.anomalies import GRACE_S
from tests.chaos.audit import Audit, audit
from tests.chaos.canary import Canary
from tests.chaos.checker import Causes, Checker
from tests.chaos.cluster_spec import SPEC
from tests.chaos.crowd import Crowd
from tests.chaos.failover import Failovers
from tests.chaos.figures import Figures, figures, processes_of, signals_of
from tests.chaos.gangs import too_long
from tests.chaos.mischief import Mischiefs, denials
from tests.chaos.nemesis import Nemesis
from tests.chaos.observer import Observer
from tests.chaos.preemption_burst import preemption_burst
from tests.chaos.quiet_periods import QuietPeriods
from tests.chaos.repair import Repair
from tests.chaos.report import Report, count, story, usual
from tests.chaos.state_loss import StateLoss
from tests.chaos.workload import BY_FORCE, SLOWLY, Workload

_HEALED_WITHIN_S = 90.0
_REST_S = GRACE_S + 2.0
_STORMS_A_STATE_LOSS = 4

Log = Callable[[str], None]


class Run:
    """All parts of a run."""

    def __init__(self, cluster: Cluster, seed: int, duration: float, log: Log) -> None:
        self.begin = time.monotonic()
        self._cluster, self._seed, self._duration = cluster, seed, duration
        self._log: Log = lambda line: log(f"{time.monotonic() - self.begin:7.1f} s  {line}")
        self._node_cpus = dict.fromkeys(
            [*cluster.spec.node_names, *cluster.spec.external_names], cluster.spec.cpus_per_node
        )
        self._causes, self._quiet = Causes(), QuietPeriods()
        self._placing = QuietPeriods(within=self._quiet)
        self.checker = Checker(self._causes, self._node_cpus)
        self._observer = Observer(cluster, self.checker, self._quiet, self._placing)
        self._canary = Canary(Kubernetes(cluster), self._placing, self._log)
        self._nemesis = Nemesis(cluster, self._quiet, self._canary, self._causes, self._log)
        self._workload = Workload(cluster, self._causes)
        self._mischiefs = Mischiefs(cluster, self._observer, self._causes)
        self._repair = Repair(cluster, self._causes, self._observer.latest_jobs)
        self._failovers = Failovers(cluster, self._nemesis, self._workload, self._quiet, self._log)
        self._crowd = Crowd(cluster, self._observer, self._workload, self._causes, self._log)
        self._state_loss = StateLoss(
            cluster, self._nemesis, self._observer, self._quiet, self._causes, self._log
        )

    def carry_out(self) -> Report:
        for pod in plan.pods(self._seed, self._duration):
            self._workload.plan_pod(pod)
        for gang in plan.gangs(self._seed, self._duration):
            self._workload.plan_gang(gang)
        for odd in plan.odd_pods(self._seed, self._duration):
            self._workload.plan_odd_pod(odd)
        for mischief in plan.mischief(self._seed, self._duration):
            self._workload.at(mischief.at, partial(self._mischiefs.do, mischief))
        for job in plan.jobs(self._seed, self._duration):
            self._workload.plan_job(job)
        for outage in plan.outages(self._seed, self._duration, self._cluster.spec):
            self._workload.plan_outage(outage)
        with ExitStack() as parts:
            for part in (self._observer, self._canary, self._nemesis, self._repair, self._workload):
                part.start()
                parts.callback(part.stop)
            self._crowd.gather()
            self._storms()
            self._workload.stop()
            self._log("all is healed: waiting for both systems to agree")
            self._placing.wait(1.0, _HEALED_WITHIN_S)
            result = audit(self._cluster, self._observer, self._node_cpus)
        self._workload.close()
        return self._report(result, self._figures())

    def _figures(self) -> Figures:
        signals = signals_of(self._cluster)
        self.checker.conclude(signals)
        processes = processes_of(self._cluster, self._workload.native_cpus, self.checker)

        def tell(at: float, words: str) -> None:
            self._log(f"{at - self.begin:8.2f} s  {words}")

        return figures(signals, processes, self.checker, self._quiet, tell)

    def _storms(self) -> None:
        """Repeats a storm, a rest, evictions, a failover, and sometimes a loss of state."""
        lasts = min(plan.STORM_S, self._duration / 3)
        for number, attacks in enumerate(plan.storms(self._seed, self._cluster.spec, lasts)):
            self._nemesis.storm(attacks)
            self._log(f"storm {number} is over: {len(attacks)} attacks")
            self._rest()
            self._crowd.thin_out()
            preemption_burst(self._workload, number)
            self._failovers.measure(number)
            if number % _STORMS_A_STATE_LOSS == 0:
                self._heal()
                self._state_loss.inflict()
                self._rest()
            if time.monotonic() - self.begin > self._duration:
                return
            self._crowd.gather()

    def _rest(self) -> None:
        """Waits long enough for the checker to report lasting anomalies."""
        self._heal(_REST_S)

    def _heal(self, lasting_s: float = 1.0) -> None:
        if not self._placing.wait(lasting_s, _HEALED_WITHIN_S):
            self._log(f"not healed: {self._placing}")

    def _report(self, result: Audit, measured: Figures) -> Report:
        violations = list(dict.fromkeys([*self.checker.violations, *result.found]))
        for violation in violations:
            for line in story(violation, self.checker.history, self.begin):
                self._log(line)
        counted: dict[str, Any] = {**count(violations), **asdict(measured)}
        denied, held = denials(self._cluster), self.checker.held_s(self._canary.blind)
        slow = median(self._crowd.slowness)
        partly = self.checker.partly_bound.found
        partial = [each for each in partly if self._quiet.covers(each.begin, each.end)]
        failovers = [round(took, 2) for took in self._failovers.took_s]
        return Report(
            **counted,
            crowd_bound=self._crowd.sizes,
            slowness=round(slow, 2),
            guests_adopted=len(self.checker.adopted),
            state_losses=len(self._causes.state_lost),
            outages={how: self._workload.done[how] for how in plan.Outage},
            kills=self._nemesis.counts[plan.KILL],
            pods=len(self.checker.names),
            failover_s_max=max(failovers, default=None),
            seed=self._seed,
            duration_s=round(time.monotonic() - self.begin, 1),
            failovers_s=failovers,
            attacks=dict(self._nemesis.counts),
            kills_of=dict(self._nemesis.kills),
            ended_by_themselves=dict(self._nemesis.ended_by_themselves),
            repairs=dict(self._repair.done),
            longest_s={kind: round(took, 1) for kind, took in self.checker.longest_s.items()},
            pods_bound=self.checker.bound,
            gangs=len(self.checker.gangs_bound),
            partial_gangs=[f"{each.gang}: {each.seconds:.1f} s" for each in too_long(partial, slow)],
            partial_s_max=round(max((each.seconds for each in partial), default=0.0), 2),
            deletions={how: self._workload.done[how] for how in (BY_FORCE, SLOWLY)},
            mischief=dict(self._mischiefs.done),
            odd_pods=dict(Counter(self.checker.odd.values())),
            denials_max=max(denied, default=0),
            denials_p50=usual(denied),
            unbindable_held_s=round(max(itertools.chain(*held.values()), default=0.0), 1),
            unbindable_held_s_p50=usual([round(each, 1) for each in held[plan.Odd.NOWHERE]]),
            native_jobs=self._workload.done["sbatch"],
            blind_s=round(self._canary.blind_s, 1),
            audit_settled_s=round(result.settled_s, 1),
            audit_bound=result.bound,
            audit_waiting=result.waiting,
            looks=self._observer.looks,
            violations=[f"{v.kind}: {v.words}" for v in violations],
        )


def run(seed: int, duration: float, directory: Path, log: Log, spec: ClusterSpec = SPEC) -> Report:
    """Starts a cluster in `directory`, and carries out a run. The cluster's logs stay in `directory`."""
    with Cluster.up(spec, directory) as cluster:
        log(f"seed {seed}, {duration:.0f} s; logs are in {cluster.logs}")
        return Run(cluster, seed, duration, log).carry_out()
