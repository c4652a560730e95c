"""Watches the managed Pods, and passes every version of each Pod to the dispatcher. Before this, the
watch applies the cluster administrator's policy to the Pod's request."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b

import orjson

from extender.execution.claim_watch import ClaimWatch
from extender.execution.dispatcher import Dispatcher
from extender.pod_request.devices.claims import NOTHING, Claims, Key, Need, Verdict, needs_of
from extender.pod_request.job_request import Request
from extender.pod_request.pod import Pod, parse_pod
from extender.pod_request.translation import TranslationConfig
from extender.policy.current import CurrentPolicy
from extender.policy.rules import Policy, judged
from extender.record.events import PodObserved, PodVanished
from kubernetes_client.protocol import Kubernetes, Manifest
from kubernetes_client.watch import ResourceWatch
from service.cooperative import yielding
from service.health import Health

_Asked = tuple[bytes, TranslationConfig, str | None]
"""The facts that determine a Pod's request. First: a digest of the spec without the fields in
`_PASSING`, and of the annotations for the job. Second: the current translation. Third: the reason why
the Pod is out of scope; None for a Pod in scope."""
_PASSING = frozenset({"schedulingGates", "nodeName"})
"""The fields of a spec that every placement changes, and that request nothing."""


@dataclass(slots=True)
class _Known:
    """The last version of a Pod: `pod` has the author's request, and `judged` is the request after the
    policy."""

    asked: _Asked
    pod: Pod
    judged: Request
    by: Policy
    needs: tuple[Need, ...] = ()  # the claims of the Pod, while the Pod is not bound
    found: Verdict = NOTHING  # the verdict about the claims, as last passed to the dispatcher


class PodWatch:
    """Follows the Pods that kube-apiserver selects by the scheduler's name. `translation` returns the
    current translation, and the same object until the translation changes."""

    def __init__(
        self,
        kubernetes: Kubernetes,
        translation: Callable[[], TranslationConfig],
        health: Health,
        policy: CurrentPolicy,
        claims: ClaimWatch | None = None,
    ) -> None:
        selector = f"spec.schedulerName={translation().scheduler_name}"
        report = partial(health.says, "watch of Pods")
        self._watch = ResourceWatch(kubernetes, "pods", selector, report)
        self._translation = translation
        self._policy = policy
        self._known: dict[str, _Known] = {}
        self._claim_watch, self._claims = claims, Claims() if claims is None else claims.claims
        self._needing: defaultdict[Key, set[str]] = defaultdict(set)
        """Claim -> the uids of the Pods that refer to the claim, and are not bound."""

    async def list(self) -> tuple[Pod, ...]:
        """Returns all managed Pods, and `run` continues from this list. Raises KubernetesError."""
        if self._claim_watch is not None:
            await self._claim_watch.load()
        listed = await self._watch.list_as(self._parse_ours)
        return tuple(pod for pod in listed if pod is not None)

    async def run(self, dispatcher: Dispatcher) -> None:
        """Passes all changes since `list` to the dispatcher, for ever."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow_pods(dispatcher))
            tasks.create_task(self._follow_policy(dispatcher))
            if self._claim_watch is not None:
                tasks.create_task(self._claim_watch.run(partial(self._look_again, dispatcher)))

    async def _follow_pods(self, dispatcher: Dispatcher) -> None:
        async for change in self._watch.changes():
            uid = change.manifest["metadata"]["uid"]
            if change.gone:
                if (known := self._known.get(uid)) is not None:
                    last = self.parse(change.manifest) if change.seen else None
                    self._refers_to(uid, known, ())
                    del self._known[uid]
                    dispatcher.feed(PodVanished(uid, change.seen, last))
            elif (pod := self._parse_ours(change.manifest)) is not None:
                dispatcher.feed(PodObserved(pod))

    def _parse_ours(self, manifest: Manifest) -> Pod | None:
        return self._as_claimed(self.parse(manifest), manifest) if self._is_ours(manifest) else None

    def _as_claimed(self, pod: Pod, manifest: Manifest | None = None) -> Pod:
        """Returns a Pod with the consequences of the Pod's claims. A claim may restrict the Nodes, or
        may be an obstacle."""
        known = self._known[pod.uid]
        if manifest is not None:
            over = pod.life.node is not None or pod.life.finished
            self._refers_to(pod.uid, known, () if over else needs_of(manifest))
        if not known.needs:
            return pod
        known.found = found = self._claims.verdict(pod.uid, known.needs)
        if found.nodes:
            constraints = pod.request.constraints.with_claimed(found.nodes)
            pod = pod._replace(request=replace(pod.request, constraints=constraints))
        return pod.with_scheduling(obstacle=found.obstacle, provisioned_on=found.provisioned_on)

    def _refers_to(self, uid: str, known: _Known, needs: tuple[Need, ...]) -> None:
        if needs == known.needs:
            return
        for need in known.needs:
            self._needing[need.key].discard(uid)
            if not self._needing[need.key]:
                del self._needing[need.key]
        for need in needs:
            self._needing[need.key].add(uid)
        known.needs = needs

    async def _look_again(self, dispatcher: Dispatcher, keys: Iterable[Key] | None) -> None:
        """Looks again at the Pods that refer to changed claims. Lets other work run in between, because
        very many Pods may refer to these claims."""
        meant = tuple(self._needing) if keys is None else keys
        uids = {uid for key in meant for uid in self._needing.get(key, ())}
        async for uid in yielding(sorted(uids)):
            known = self._known.get(uid)
            if known is None or not known.needs:
                continue
            if self._claims.verdict(uid, known.needs) != known.found:
                asked = known.pod._replace(request=known.judged)
                dispatcher.feed(PodObserved(self._as_claimed(asked)))

    def _is_ours(self, manifest: Manifest) -> bool:
        """Returns True for a managed Pod. A Pod that was managed once stays managed, because the Pod may
        have a job."""
        return manifest["metadata"]["uid"] in self._known or self._translation().manages(manifest)

    async def _follow_policy(self, dispatcher: Dispatcher) -> None:
        while True:
            changed = self._policy.changed
            await self._judge_again(dispatcher)
            await changed.wait()

    async def _judge_again(self, dispatcher: Dispatcher) -> None:
        """Applies the current policy to all Pods that are not settled (`_is_settled`). Lets other work
        run in between."""
        async for uid in yielding(tuple(self._known)):
            known = self._known.get(uid)
            if known is None or known.by is self._policy.policy or _is_settled(known):
                continue
            before, pod = known.judged, self._judge(known, self._translation())
            if pod.request != before:
                dispatcher.feed(PodObserved(self._as_claimed(pod)))

    def parse(self, manifest: Manifest) -> Pod:
        """Returns a managed Pod with the request after the policy. Reads the request only from a new
        spec or new annotations, because most versions of a Pod differ only in status, gates and Node. A
        digest shows whether the spec has changed, because `metadata.generation` is not reliable before
        Kubernetes 1.33."""
        metadata = manifest["metadata"]
        translation = self._translation()
        uid, annotations = metadata["uid"], (metadata.get("annotations") or {}).items()
        ours = {key: value for key, value in annotations if translation.reads(key)}
        lasting = {key: value for key, value in manifest["spec"].items() if key not in _PASSING}
        wish = blake2b(orjson.dumps((lasting, ours)), digest_size=16).digest()
        asked = (wish, translation, translation.scope.problem(manifest))
        known = self._known.get(uid)
        if known is not None and known.asked == asked:
            asked_for = known.pod.request
            known.pod = parse_pod(manifest, translation, asked_for)
            if known.by is self._policy.policy:
                changed = known.judged is not asked_for
                return known.pod._replace(request=known.judged) if changed else known.pod
        else:
            pod = parse_pod(manifest, translation)
            before, known = known, _Known(asked, pod, pod.request, self._policy.policy)
            if before is not None:
                known.needs, known.found = before.needs, before.found
            self._known[uid] = known
        return self._judge(known, translation)

    def _judge(self, known: _Known, translation: TranslationConfig) -> Pod:
        pod = judged(known.pod, self._policy.policy, translation)
        known.judged, known.by = pod.request, self._policy.policy
        return pod


def _is_settled(known: _Known) -> bool:
    """Returns True for a bound Pod with an allowed request."""
    return known.pod.life.node is not None and not known.judged.problems
