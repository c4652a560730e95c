"""Tells the dispatcher of every version of every Pod that names our scheduler and is ours, as the policy
has it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import blake2b

import orjson

from extender.dispatcher import Dispatcher
from extender.health import Health
from extender.kubernetes_api import KubernetesApi, Manifest
from extender.placement.events import PodObserved, PodVanished
from extender.placement.policy import Policy, judged
from extender.placement.workload import Dialect, Pod, Request, parse_pod
from extender.policy.keeper import PolicyKeeper
from extender.resource_watch import ResourceWatch
from extender.turns import by_turns

_Asked = tuple[bytes, Dialect, str | None, tuple[tuple[str, str], ...]]
"""What lasts of a Pod's spec in short, how it was read, whether it is out of scope, and those of its
annotations that Slurm is asked by."""
_PASSING = frozenset({"schedulingGates", "nodeName"})
"""What every placement changes in a spec. Nothing is asked for by it."""


@dataclass(slots=True)
class _Known:
    """A Pod's last version as its author wrote it, and what the policy made of what it asks for."""

    asked: _Asked
    pod: Pod
    judged: Request
    by: Policy


class PodWatch:
    """The API server selects the Pods: others cost nothing here. `dialect` gives how they are read at
    this moment, the same object while nothing changes."""

    def __init__(
        self,
        kubernetes: KubernetesApi,
        dialect: Callable[[], Dialect],
        health: Health,
        policy: PolicyKeeper,
    ) -> None:
        selector = f"spec.schedulerName={dialect().scheduler_name}"
        self._watch = ResourceWatch(
            kubernetes, "pods", selector, lambda trouble: health.says("watch of Pods", trouble)
        )
        self._dialect = dialect
        self._policy = policy
        self._known: dict[str, _Known] = {}

    async def list(self) -> tuple[Pod, ...]:
        """Returns all Pods of ours; `run` goes on from there. Raises KubernetesError."""
        listed = await self._watch.list_as(self._parse_ours)
        return tuple(pod for pod in listed if pod is not None)

    async def run(self, dispatcher: Dispatcher) -> None:
        """Feeds the dispatcher for ever, after `list`."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow_pods(dispatcher))
            tasks.create_task(self._follow_policy(dispatcher))

    async def _follow_pods(self, dispatcher: Dispatcher) -> None:
        async for change in self._watch.changes():
            uid = change.manifest["metadata"]["uid"]
            if change.gone:
                if self._known.pop(uid, None) is not None:
                    dispatcher.feed(PodVanished(uid, seen=change.seen))
            elif (pod := self._parse_ours(change.manifest)) is not None:
                dispatcher.feed(PodObserved(pod))

    def _parse_ours(self, manifest: Manifest) -> Pod | None:
        return self._parse(manifest) if self._is_ours(manifest) else None

    def _is_ours(self, manifest: Manifest) -> bool:
        """One that was ours stays so: it may have a job."""
        return manifest["metadata"]["uid"] in self._known or self._dialect().manages(manifest)

    async def _follow_policy(self, dispatcher: Dispatcher) -> None:
        while True:
            changed = self._policy.changed
            await self._judge_again(dispatcher)
            await changed.wait()

    async def _judge_again(self, dispatcher: Dispatcher) -> None:
        """A Pod that waits goes by the policy of now. There may be very many: others get their turns."""
        async for uid in by_turns(tuple(self._known)):
            known = self._known.get(uid)
            if known is None or known.by is self._policy.policy or _is_settled(known):
                continue
            before, pod = known.judged, self._judge(known, self._dialect())
            if pod.request != before:
                dispatcher.feed(PodObserved(pod))

    def _parse(self, manifest: Manifest) -> Pod:
        """What a Pod asks for is read once for each spec: its versions differ in their status, gates
        and Node. Its generation would tell, but a kube-apiserver before 1.33 keeps the author's."""
        metadata = manifest["metadata"]
        dialect = self._dialect()
        uid, prefix = metadata["uid"], dialect.annotation_prefix
        annotations = (metadata.get("annotations") or {}).items()
        ours = tuple((key, value) for key, value in annotations if key.startswith(prefix))
        lasting = {key: value for key, value in manifest["spec"].items() if key not in _PASSING}
        spec = blake2b(orjson.dumps(lasting), digest_size=16).digest()
        asked = (spec, dialect, dialect.scope.problem(manifest), ours)
        known = self._known.get(uid)
        if known is not None and known.asked == asked:
            asked_for = known.pod.request
            known.pod = parse_pod(manifest, dialect, asked_for)
            if known.by is self._policy.policy:
                changed = known.judged is not asked_for
                return replace(known.pod, request=known.judged) if changed else known.pod
        else:
            pod = parse_pod(manifest, dialect)
            known = self._known[uid] = _Known(asked, pod, pod.request, self._policy.policy)
        return self._judge(known, dialect)

    def _judge(self, known: _Known, dialect: Dialect) -> Pod:
        pod = judged(known.pod, self._policy.policy, dialect)
        known.judged, known.by = pod.request, self._policy.policy
        return pod


def _is_settled(known: _Known) -> bool:
    """Tells whether a Pod runs, and by what it was allowed to ask for."""
    return known.pod.node is not None and not known.judged.problems
