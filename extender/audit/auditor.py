"""The leader's audit: compares Slurm with Kubernetes periodically, and corrects certain differences.

A difference may be temporary. So a difference counts only after several new readings have found the
difference again. The audit logs and counts each difference once. The ledger cancels a live job if the
job's Pod is proven gone, has another job, or is not allowed to have a job. The eviction limiter limits
the number of such cancellations in a minute. All other differences are corrected by the extender's
reactions to events, or by people (invariants I5 and I6 in docs/design/architecture.md)."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from math import inf

import structlog

from extender.audit.compare import Finding, FindingKind
from extender.audit.reader import Reader
from extender.execution.dispatcher import Dispatcher
from extender.explain.sentences import sentence
from extender.node_view.view import ClusterView
from extender.placement.ledger import Ledger
from extender.pod_request.pod import Pod
from extender.record.events import OrphanFound
from extender.record.placeholder import Placeholder
from extender.record.states import State
from kubernetes_client.errors import KubernetesError
from service.health import Health, common_problem
from service.periodic import periodically
from slurm_client.errors import SlurmError

# Pauses before the first rounds, shorter than later pauses because new differences are likely at the
# start. In the first minutes, requests of an earlier leader may still arrive in Slurm. If slurmctld was
# killed, its next start may also restore jobs that the earlier leader has cancelled.
_FIRST_S = (10.0, 20.0, 30.0, 60.0)
_CONFIRM_S = 2.0
_BYTES_A_JOB = 85  # in replies of Slurm 24.11, which are indented; 42 in 26.05
_BYTES_A_SECOND = 2000
"""Largest average rate, in bytes per second, at which the audit reads data. With more jobs in Slurm, the
audit makes fewer rounds."""
_MOST_LOGGED = 20
"""Largest number of findings that a round logs. The metrics and the command report all findings."""
_OVER = frozenset({State.RELEASING, State.DONE})
_MENDED = frozenset({FindingKind.ORPHAN_JOB, FindingKind.TWO_JOBS})

log = structlog.get_logger()


class PeriodicAudit:
    """The periodic audit. The function `report` receives the findings after each round."""

    def __init__(
        self,
        reader: Reader,
        ledger: Ledger,
        view: Callable[[], ClusterView],
        report: Callable[[Iterable[Finding]], object],
        interval: float,
        health: Health,
        *,
        jobs_of_adopted_pods: Callable[[], frozenset[int]] = frozenset,
    ) -> None:
        """The function `jobs_of_adopted_pods` returns the ids of the jobs that `unmanaged.adoption`
        handles."""
        self._reader = reader
        self._ledger = ledger
        self._view = view
        self._report = report
        self._interval = interval
        self._health = health
        self._jobs_of_adopted_pods = jobs_of_adopted_pods
        self._wrong: dict[Finding, None] = {}
        """The confirmed findings of the last round, in order."""

    async def run(self, dispatcher: Dispatcher) -> None:
        first = iter(_FIRST_S)
        await periodically(
            partial(self.go_round, dispatcher),
            lambda: asyncio.sleep(min(next(first, inf), self.pause)),
            outlives=(SlurmError, KubernetesError),
            report=self._tell,
            pauses_first=True,
        )

    def _tell(self, error: Exception | None) -> None:
        if error is not None:
            tell = self._health.news(common_problem(error), log.warning)
            tell("not audited", error=str(error))

    @property
    def pause(self) -> float:
        """Pause between two rounds of the audit. The pause is longer if Slurm has more jobs."""
        return max(self._interval, self._reader.jobs * _BYTES_A_JOB / _BYTES_A_SECOND)

    async def go_round(self, dispatcher: Dispatcher) -> None:
        """Compares Slurm with Kubernetes once. Raises SlurmError and KubernetesError."""
        found = await self._reader.look(*await self._known())
        sure = {finding: None for finding in found if finding in self._wrong}
        unsure = tuple(finding for finding in found if finding not in self._wrong)
        for _ in range(self._ledger.rules.confirmations - 1):
            if unsure:
                await asyncio.sleep(_CONFIRM_S)
                unsure = await self._reader.look_again(unsure, *await self._known())
        _say(log.warning, "the systems differ", unsure)
        _say(log.info, "the systems agree again", [each for each in self._wrong if each not in sure])
        self._wrong = sure | dict.fromkeys(unsure)
        self._report(self._wrong)
        for finding in self._wrong:
            if finding.kind in _MENDED and finding.mended and finding.key and finding.job_id:
                dispatcher.feed(OrphanFound(finding.key, finding.job_id))

    async def _known(self) -> tuple[tuple[Pod, ...], ClusterView, frozenset[int]]:
        """Returns the ledger's Pods, the view, and the ids of the ledger's jobs. Another thread reads
        the records, because the ledger may have 50,000 records."""
        records, view = tuple(self._ledger.placeholders), self._view()
        pods, jobs = await asyncio.to_thread(_pods_and_jobs, records)
        return pods, view, jobs | self._jobs_of_adopted_pods()


def _pods_and_jobs(records: Sequence[Placeholder]) -> tuple[tuple[Pod, ...], frozenset[int]]:
    """Returns the Pods and the job ids of the ledger's records, without the Pods of records in the
    states `_OVER`. While the ledger watches a job, the returned Pods have the job and the attempt of the
    record, because the record is newer than the Pods' annotations."""
    pods = (
        member.pod.with_scheduling(job_id=record.job.id, attempt=record.attempt)
        if record.watched
        else member.pod
        for record in records
        if record.state not in _OVER
        for member in record.members
    )
    return tuple(pods), frozenset(record.job.id for record in records if record.job.id is not None)


def _say(tell: Callable[..., object], what: str, findings: Sequence[Finding]) -> None:
    for finding in findings[:_MOST_LOGGED]:
        tell(
            what,
            kind=finding.kind,
            pod=finding.pod or None,
            job=finding.job_id,
            node=finding.node or None,
            cause=sentence(finding.cause),
            fix=finding.fix,
        )
    if len(findings) > _MOST_LOGGED:
        tell(what, more=len(findings) - _MOST_LOGGED)
