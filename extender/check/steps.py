"""The steps of the check, in order. Each step waits for an expected state. At the time limit, the step
reports the actual state.

The check needs the rights `create`, `get` and `delete` for Pods in the namespace, and Slurm's token. If
Nodes and Slurm nodes have different names, the check also needs `get` for Nodes. The check deletes both
Pods at the end, also after a failure. If the check is killed, the placed Pod ends after some time
(activeDeadlineSeconds)."""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Final

from extender.check import pods
from extender.check.pods import Wish
from extender.preflight.result import Result, Verdict
from extender.settings import Settings
from kubernetes_client.errors import Conflict, KubernetesError, Rejected
from kubernetes_client.protocol import Kubernetes, Manifest
from slurm_client.errors import SlurmError
from slurm_client.model import Job
from slurm_client.protocol import Slurm
from wellknown.job_key import job_name, whole_number
from wellknown.names import CONDITION, GATE, JOB_ID
from wellknown.node_mapping import slurm_name

_LOOK_S: Final = 0.5
_CLEAN_UP_S: Final = 20.0
_DENIED: Final = 'slurm-extender.io" denied the request'
"""Part of kube-apiserver's message if the extender's webhook refuses a Pod."""
_FIXES: Final = {
    "gated": "Check that the webhook is installed (`kubectl get mutatingwebhookconfigurations`) and"
    " that the extender runs (`kubectl get pods`, /readyz). If a policy refuses the Pod, the message"
    " names the missing annotation: use --annotation.",
    "placeholder": "See the extender's /readyz and log. `slurm-extender preflight` reports missing"
    " requirements.",
    "bound": "`kubectl describe pod` shows kube-scheduler's message. Check that kube-scheduler has the"
    " profile and asks the extender. If a job waits, `squeue` shows the reason.",
    "running": "`scontrol show job` shows the job's state and reason.",
    "ended": "See the extender's /readyz and log. `slurm-extender audit` lists jobs without a Pod.",
    "refused": "Check that kube-apiserver asks the extender's webhook about Pods: `kubectl get"
    " mutatingwebhookconfigurations`.",
}
"""Advice for each step, if the step fails."""


class Failed(Exception):
    """Raised if a step does not find the expected state. The message describes the actual state."""


class Steps:
    """A run of the check. `clock` returns a time in seconds."""

    def __init__(
        self,
        kubernetes: Kubernetes,
        slurm: Slurm,
        settings: Settings,
        wish: Wish,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._kubernetes = kubernetes
        self._slurm = slurm
        self._settings = settings
        self._wish = wish
        self._clock = clock
        tag = secrets.token_hex(4)
        self.name = f"slurm-extender-check-{tag}"
        """Name of the placed Pod."""
        self.refused_name = f"slurm-extender-check-refused-{tag}"
        self._job: Job | None = None
        self._ends = clock() + wish.timeout_s
        self._steps: dict[str, Callable[[], Awaitable[str]]] = {
            "gated": self._gated,
            "placeholder": self._placeholder,
            "bound": self._bound,
            "running": self._running,
            "ended": self._ended,
        }

    async def run(self, report: Callable[[Result], object]) -> bool:
        """Runs all steps, and reports the outcome of each step. Returns True if all steps passed.
        Deletes the Pods, also if the run is cancelled."""
        try:
            return await self._run(report)
        finally:
            with suppress(KubernetesError, TimeoutError):
                await asyncio.shield(asyncio.wait_for(self._clean_up(), _CLEAN_UP_S))

    async def _run(self, report: Callable[[Result], object]) -> bool:
        good = True
        for step, act in self._steps.items():
            result = await self._outcome(step, act) if good else _skipped(step)
            good = good and result.verdict is Verdict.PASS
            report(result)
        result = await self._outcome("refused", self._refused)
        report(result)
        return good and result.verdict is Verdict.PASS

    async def _outcome(self, step: str, act: Callable[[], Awaitable[str]]) -> Result:
        began = self._clock()
        try:
            words = await act()
        except (Failed, KubernetesError, SlurmError) as error:
            return Result(step, Verdict.FAIL, str(error), _FIXES[step])
        return Result(step, Verdict.PASS, f"{words} ({self._clock() - began:.1f} s)", "")

    async def _gated(self) -> str:
        prefix, scheduler = self._settings.annotation_prefix, self._settings.scheduler_name
        manifest = pods.placed(self.name, self._wish, scheduler, prefix)
        pod = await self._kubernetes.create_pod(self._wish.namespace, manifest)
        if GATE not in [gate["name"] for gate in pod["spec"].get("schedulingGates") or ()]:
            raise Failed("the Pod was created without the extender's gate: the webhook was not asked")
        return f"Pod {self._wish.namespace}/{self.name} has the extender's gate"

    async def _placeholder(self) -> str:
        async def look() -> str:
            pod = await self._pod()
            job_id = whole_number((pod["metadata"].get("annotations") or {}).get(JOB_ID) or "")
            self._job = None if job_id is None else await self._slurm.job(job_id)
            if self._job is None:
                raise Failed(f"the Pod has no job in Slurm; {_condition(pod)}")
            if self._job.name != job_name(self._wish.namespace, self.name):
                raise Failed(f"the Pod names job {job_id}, but this job is {self._job.name}")
            return f"job {job_id} of partition {self._job.partition} is the Pod's placeholder"

        return await self._until(look)

    async def _bound(self) -> str:
        async def look() -> str:
            pod, job = await self._pod(), await self._read_job()
            node = pod["spec"].get("nodeName")
            if not node:
                waits = f"job {job.id} is {job.state.text}" + (f" ({job.reason})" if job.reason else "")
                raise Failed(f"the Pod is not bound: {waits}; {_condition(pod)}")
            if job.nodes != (named := (await self._slurm_node(node, job),)):
                raise Failed(f"the Pod is bound to {named[0]}, but job {job.id} has {job.nodes}")
            return f"bound to Node {node}, as granted by Slurm"

        return await self._until(look)

    async def _running(self) -> str:
        async def look() -> str:
            job = await self._read_job()
            if not job.state.running:
                raise Failed(f"job {job.id} is {job.state.text}")
            return f"job {job.id} is RUNNING on {', '.join(job.nodes)}"

        return await self._until(look)

    async def _ended(self) -> str:
        await self._delete(self.name)
        assert self._job is not None  # the earlier steps have read the job
        job_id = self._job.id

        async def look() -> str:
            job = await self._slurm.job(job_id)
            if job is not None and not job.state.ended:
                raise Failed(f"the Pod is deleted, but job {job_id} is {job.state.text}")
            return f"job {job_id} ended with its Pod"

        return await self._until(look)

    async def _refused(self) -> str:
        manifest = pods.refused(self.refused_name, self._wish, self._settings.scheduler_name)
        try:
            await self._kubernetes.create_pod(self._wish.namespace, manifest)
        except Rejected as error:
            if _DENIED not in error.message:
                raise
            return "a Pod without requests is refused"
        raise Failed("a Pod without requests was created, but should have been refused")

    async def _until(self, look: Callable[[], Awaitable[str]]) -> str:
        """Repeats `look` until `look` succeeds. After the time limit, raises Failed with the last
        message."""
        while True:
            try:
                return await look()
            except Failed as error:
                if self._clock() >= self._ends:
                    raise Failed(f"not within {self._wish.timeout_s:g} s: {error}") from error
            await asyncio.sleep(_LOOK_S)

    async def _pod(self) -> Manifest:
        pod = await self._kubernetes.read_pod(self._wish.namespace, self.name)
        if pod is None:
            raise Failed("the Pod is gone: another user has deleted the Pod")
        return pod

    async def _read_job(self) -> Job:
        assert self._job is not None
        job = await self._slurm.job(self._job.id)
        if job is None:
            raise Failed(f"Slurm no longer knows job {self._job.id}")
        self._job = job
        return job

    async def _slurm_node(self, node: str, job: Job) -> str:
        """Returns the name of the Slurm node that belongs to a Node. Reads the Node's label only if the
        job's node has another name than the Node. In most clusters, both names are equal."""
        if job.nodes == (node,):
            return node
        labels = (await self._kubernetes.read_node(node))["metadata"].get("labels") or {}
        return slurm_name(node, labels, self._settings.node_name_label)

    async def _clean_up(self) -> None:
        for name in (self.name, self.refused_name):
            await self._delete(name)

    async def _delete(self, name: str) -> None:
        for _ in range(3):
            pod = await self._kubernetes.read_pod(self._wish.namespace, name)
            if pod is None or pod["metadata"].get("deletionTimestamp"):
                return
            with suppress(Conflict):
                uid = {"uid": pod["metadata"]["uid"]}
                await self._kubernetes.delete_pod(self._wish.namespace, name, uid, 1)
                return


def _skipped(step: str) -> Result:
    return Result(step, Verdict.SKIPPED, "an earlier step failed", "")


def _condition(pod: Manifest) -> str:
    """Returns the messages of the conditions that the extender and kube-scheduler have set on a Pod."""
    return "; ".join(_messages(pod)) or "the Pod has no condition yet"


def _messages(pod: Manifest) -> Iterator[str]:
    for kind, who in ((CONDITION, "slurm-extender"), ("PodScheduled", "kube-scheduler")):
        for each in (pod.get("status") or {}).get("conditions") or ():
            if each["type"] == kind and each.get("message"):
                yield f"{who} says: {each['message']}"
