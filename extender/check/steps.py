"""The steps of the check, one after the other: each waits for what it is to see, or says what it saw.

It needs these rights, and Slurm's token: `create`, `get` and `delete` of pods in its namespace; and
`get` of nodes, where Nodes have other names than Slurm's nodes. Both of its Pods are deleted in any
case; the Pod that a killed check has left ends by itself once it runs (activeDeadlineSeconds).
"""

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
"""How kube-apiserver begins the words of the extender's webhook."""
_FIXES: Final = {
    "gated": "Is the webhook installed (`kubectl get mutatingwebhookconfigurations`), and does the"
    " extender run (`kubectl get pods`, /readyz)? A refusal by policy names what the Pod lacks:"
    " --annotation.",
    "placeholder": "See /readyz of the extender and its log; `slurm-extender preflight` says what is"
    " missing.",
    "bound": "`kubectl describe pod` has kube-scheduler's words; is its profile there, and does it ask"
    " the extender? A job that waits: `squeue` says for what.",
    "running": "`scontrol show job` has the job's state and why.",
    "ended": "See /readyz of the extender and its log; `slurm-extender audit` names jobs without a Pod.",
    "refused": "The extender's webhook has to be asked about Pods: `kubectl get"
    " mutatingwebhookconfigurations`.",
}
"""What to look at where a step fails, by step."""


class Failed(Exception):
    """A step did not see what it is to see; the words say what it saw."""


class Steps:
    """One run of the check. `clock` gives seconds."""

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
        """The placed Pod's name."""
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
        """Does all steps, and reports the outcome of each as it comes; returns whether all passed. It
        leaves nothing behind, also where it is cancelled."""
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
            raise Failed("the Pod was created without the extender's gate: its webhook was not asked")
        return f"Pod {self._wish.namespace}/{self.name} has its gate"

    async def _placeholder(self) -> str:
        async def look() -> str:
            pod = await self._pod()
            job_id = whole_number((pod["metadata"].get("annotations") or {}).get(JOB_ID) or "")
            self._job = None if job_id is None else await self._slurm.job(job_id)
            if self._job is None:
                raise Failed(f"the Pod has no job in Slurm; {_condition(pod)}")
            if self._job.name != job_name(self._wish.namespace, self.name):
                raise Failed(f"job {job_id}, which the Pod names, is {self._job.name}")
            return f"job {job_id} of partition {self._job.partition} stands for it"

        return await self._until(look)

    async def _bound(self) -> str:
        async def look() -> str:
            pod, job = await self._pod(), await self._read_job()
            node = pod["spec"].get("nodeName")
            if not node:
                waits = f"job {job.id} is {job.state.text}" + (f" ({job.reason})" if job.reason else "")
                raise Failed(f"the Pod is not bound: {waits}; {_condition(pod)}")
            if job.nodes != (named := (await self._slurm_node(node, job),)):
                raise Failed(f"the Pod is bound to {named[0]}, and job {job.id} has {job.nodes}")
            return f"bound to Node {node}, which Slurm granted"

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
        assert self._job is not None  # the steps before have read it
        job_id = self._job.id

        async def look() -> str:
            job = await self._slurm.job(job_id)
            if job is not None and not job.state.ended:
                raise Failed(f"the Pod is deleted, and job {job_id} is {job.state.text}")
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
        raise Failed("a Pod without requests was created, and should have been refused")

    async def _until(self, look: Callable[[], Awaitable[str]]) -> str:
        """Looks until there is nothing to object to. Raises Failed with the last objection."""
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
            raise Failed("the Pod is gone: somebody has deleted it")
        return pod

    async def _read_job(self) -> Job:
        assert self._job is not None
        job = await self._slurm.job(self._job.id)
        if job is None:
            raise Failed(f"Slurm does not know job {self._job.id} any more")
        self._job = job
        return job

    async def _slurm_node(self, node: str, job: Job) -> str:
        """Returns the node of Slurm that a Node names. Mostly it has the Node's own name."""
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
    return Result(step, Verdict.SKIPPED, "a step before it failed", "")


def _condition(pod: Manifest) -> str:
    """Returns what the extender and kube-scheduler say of a Pod, in words."""
    return "; ".join(_said(pod)) or "nothing is said of it yet"


def _said(pod: Manifest) -> Iterator[str]:
    for kind, who in ((CONDITION, "slurm-extender"), ("PodScheduled", "kube-scheduler")):
        for each in (pod.get("status") or {}).get("conditions") or ():
            if each["type"] == kind and each.get("message"):
                yield f"{who} says: {each['message']}"
