"""Reads Slurm and Kubernetes for an audit, with one request for all jobs and few requests for single
jobs.

Slurm cannot list only the jobs in a range of ids, so the reply has 42 to 85 bytes for each job in Slurm.
Single requests are for jobs that belong to no known Pod. The reader reads foreign jobs only once.
Another thread compares up to 50,000 Pods."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime

from extender.audit.compare import Finding, FindingKind, Snapshot, compare, unclear
from extender.execution.startup import is_over
from extender.jobs.claim import is_of_pods, key_of
from extender.node_view.read_jobs import read_all
from extender.node_view.slurm_nodes import SlurmNodes
from extender.node_view.view import ClusterView
from extender.pod_request.pod import Pod
from extender.pod_request.translation import TranslationConfig
from extender.record.config import PlacementConfig
from extender.unmanaged.adoption import adoptable
from kubernetes_client.protocol import Kubernetes, Manifest
from slurm_client.job_state import JobState
from slurm_client.model import Job
from slurm_client.protocol import Slurm
from wellknown.job_key import PlaceholderKey


class Reader:
    """The reader of an audit. All methods raise SlurmError and KubernetesError."""

    def __init__(
        self,
        slurm: Slurm,
        slurm_nodes: SlurmNodes,
        kubernetes: Kubernetes,
        config: PlacementConfig,
        translation: TranslationConfig,
        native: Callable[[int | None], object] = lambda _: None,
    ) -> None:
        """The function `native` receives the highest job id below the placeholders' range at each
        reading, or None if there is no such job."""
        self._slurm = slurm
        self._slurm_nodes = slurm_nodes
        self._kubernetes = kubernetes
        self._config = config
        self._translation = translation
        self._native = native
        self._foreign: dict[int, Job] = {}
        """Live foreign jobs in the placeholders' range, as the reader has read each job."""
        self.jobs = 0
        """Number of jobs in Slurm at the last reading, including the tasks of arrays."""

    async def look(
        self, pods: Collection[Pod], view: ClusterView, known: Container[int] = ()
    ) -> tuple[Finding, ...]:
        """Returns all differences. Skips `known` jobs that no Pod names."""
        states = await self._slurm.all_states()
        self.jobs = states.entries
        below = (job_id for job_id in states if job_id < self._config.ids.first)
        self._native(max(below, default=None))
        self._foreign = {
            job_id: job
            for job_id, job in self._foreign.items()
            if job_id in states and not states[job_id].ended
        }
        return await self._compare(pods, states, view, known, drains=True)

    async def look_again(
        self,
        findings: Collection[Finding],
        pods: Iterable[Pod],
        view: ClusterView,
        known: Container[int] = (),
    ) -> tuple[Finding, ...]:
        """Returns the given differences that still exist. Reads only the jobs of these differences."""
        concerned = await asyncio.to_thread(_concerned, findings, pods)
        ids = {finding.job_id for finding in findings} | {pod.scheduling.job_id for pod in concerned}
        drains = any(finding.kind is FindingKind.STUCK_DRAIN for finding in findings)
        states = await self._slurm.states(filter(None, ids))
        still = await self._compare(concerned, states, view, known, drains=drains)
        before = frozenset(findings)
        return tuple(finding for finding in still if finding in before)

    async def _compare(
        self,
        pods: Collection[Pod],
        states: Mapping[int, JobState],
        view: ClusterView,
        known: Container[int],
        *,
        drains: bool,
    ) -> tuple[Finding, ...]:
        doubtful = await asyncio.to_thread(list, unclear(pods, states, self._config, known))
        read = await read_all((one for one in doubtful if one not in self._foreign), self._slurm)
        listed = await asyncio.to_thread(_workloads, pods) if read else {}
        over = set[int]()
        for job in read:
            key = key_of(job)
            if key is None or key.cluster != self._config.cluster:
                self._foreign[job.id] = job
            elif not _has_pods(key, job.id, listed) and await is_over(
                key, job.id, self._kubernetes, self._adoptable
            ):
                over.add(job.id)
        foreign = (job for job_id, job in self._foreign.items() if job_id in states)
        reading = Snapshot(
            at=datetime.now(UTC),
            pods=tuple(pods),
            states=states,
            jobs={job.id: job for job in (*read, *foreign)},
            over=frozenset(over),
            view=replace(view),  # only one thread may use the caches of a view
            nodes=(await self._slurm_nodes.read()).nodes if drains else (),
        )
        return await asyncio.to_thread(compare, reading, self._config)

    def _adoptable(self, manifest: Manifest) -> bool:
        return adoptable(manifest, self._translation) is not None


def _concerned(findings: Iterable[Finding], pods: Iterable[Pod]) -> list[Pod]:
    named = {finding.pod for finding in findings}
    return [pod for pod in pods if pod.full_name in named]


def _has_pods(key: PlaceholderKey, job_id: int, workloads: Mapping[str, list[Pod]]) -> bool:
    return key.uid in workloads and is_of_pods(key, job_id, workloads[key.uid])


def _workloads(pods: Iterable[Pod]) -> Mapping[str, list[Pod]]:
    """Returns the Pods of each workload, by uid."""
    found = defaultdict[str, list[Pod]](list)
    for pod in pods:
        found[pod.workload.uid].append(pod)
    return found
