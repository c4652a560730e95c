"""The check that kube-scheduler evicts no Pod for a Pod that Slurm has not let in, on every replica.

The check has two sources. If the file of kube-scheduler's configuration is known, the check reads it.
And each Pod that kube-scheduler evicts has an Event (`Preempted`) with the uid of the preemptor.
/preempt offers no victims for a managed Pod (`preempt.route`), so one such Event proves that /preempt
was not asked. For a PodGroup (1.37) nobody asks /preempt, and /filter has let the Pod in. (`related` is
empty.) Others may forge such Events: the number of calls of kube-apiserver does not grow with their
number."""

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import structlog

from extender.kube_scheduler import file as scheduler_file
from extender.kube_scheduler.configuration import unsafe_preemption
from extender.kube_scheduler.evictions import Eviction, Preemptor, Turns
from extender.pod_request.translation import TranslationConfig
from kubernetes_client.errors import KubernetesError
from kubernetes_client.protocol import Kubernetes, Manifest
from kubernetes_client.watch import ResourceWatch
from service.health import Health
from service.periodic import periodically
from service.watched_file import Stamp, stamp
from wellknown.log_fields import about

PART: Final = "preemption"
_WATCH: Final = "watch of Events"
_LOOKS: Final = "Events of evictions"
_LOOK_S: Final = 5.0
_RETRY_S: Final = 5.0
_PAUSE_S: Final = 1.0
"""Between two preemptors that are looked for, by two lists at most."""
_MOST: Final = 500
"""How many preemptors of one namespace's Pods wait to be looked for, and victims of each."""
_LASTS_S: Final = 600.0
"""How long an eviction is trouble: a person corrects kube-scheduler, and no Event says so."""
_FIX: Final = (
    "; disable DefaultPreemption in kube-scheduler's profile, or give slurm-extender's entry in its"
    " `extenders` `preemptVerb: preempt`"
)

log = structlog.get_logger()


class PreemptionCheck:
    """`file` is the KubeSchedulerConfiguration, None where it is not known. `counted` is called for each
    Pod that was evicted for one that Slurm has not let in."""

    def __init__(
        self,
        kubernetes: Kubernetes,
        health: Health,
        translation: TranslationConfig,
        file: Path | None,
        counted: Callable[[], object] = lambda: None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._kubernetes = kubernetes
        self._health = health
        self._translation = translation
        self._file = file
        self._counted = counted
        self._clock = clock
        selector = f"reason=Preempted,reportingComponent={translation.scheduler_name}"
        self._watch = ResourceWatch(kubernetes, "events", selector, partial(health.says, _WATCH))
        self._known: set[str] = set()
        """The uids of the Events that were heard of."""
        self._turns = Turns(_MOST)
        self._stamp: Stamp | None = None
        self._configured: str | None = None
        self._seen: str | None = None
        self._seen_at = 0.0

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(periodically(self.look, _LOOK_S))
            tasks.create_task(self._follow())
            tasks.create_task(self._look_for_preemptors())

    def look(self) -> None:
        """Looks at the file, if it has changed, and says what is wrong now."""
        self._read()
        if self._seen is not None and self._clock() - self._seen_at >= _LASTS_S:
            self._seen = None
        words = self._configured or self._seen
        self._health.says(PART, words and words + _FIX, alarm=True)

    def hears(self, event: Manifest) -> None:
        """Notes the eviction that an Event tells, once; it is looked at in its turn."""
        uid, eviction = event["metadata"]["uid"], Eviction.of(event)
        if eviction is None or uid in self._known:
            return
        self._known.add(uid)
        if not self._turns.add(eviction):
            namespace = eviction.victim.namespace
            words = f"namespace {namespace} has more of them than are looked at: who writes them?"
            self._health.says(_LOOKS, words)

    async def _look_for_preemptors(self) -> None:
        """Looks for one after the other, and again after an outage."""
        while True:
            named = await self._turns.next()
            try:
                manifest = await self._preemptor(named)
            except KubernetesError as error:
                self._health.says(_LOOKS, error)
            else:
                self._turns.over(named)
                self._judge(named, manifest)
                if not self._turns:
                    self._health.says(_LOOKS, None)
            await asyncio.sleep(_PAUSE_S)

    def _judge(self, named: Preemptor, manifest: Manifest | None) -> None:
        """Notes the Pods that went for a managed one."""
        if manifest is None:
            if self._translation.scope.everything:  # no Pod of this profile is another's
                self._note(named, f"the Pod with uid {named.uid}")
        elif self._translation.manages(manifest):
            metadata = manifest["metadata"]
            self._note(named, f"{metadata['namespace']}/{metadata['name']}")

    async def _preemptor(self, named: Preemptor) -> Manifest | None:
        """Returns a Pod that kube-scheduler has nominated for a Node or bound there, or None."""
        name = self._translation.scheduler_name
        for field in ("status.nominatedNodeName", "spec.nodeName"):
            selector = f"{field}={named.node},spec.schedulerName={name}"
            listed = await self._kubernetes.list("pods", selector)
            found: Sequence[Manifest] = listed.get("items") or ()
            for manifest in found:
                if manifest["metadata"]["uid"] == named.uid:
                    return manifest
        return None

    def _note(self, named: Preemptor, preemptor: str) -> None:
        """There may be hundreds at once: the first of them is trouble, and the metric counts all."""
        for victim in named.victims:
            self._counted()
            log.warning("evicted by kube-scheduler", **about(victim), preemptor=preemptor)
        self._seen_at = self._clock()
        if self._seen is None:
            victim = named.victims[0]
            self._seen = (
                f"kube-scheduler has evicted {victim.namespace}/{victim.name} for {preemptor}, which is"
                " Slurm's to place, and has not asked /preempt"
            )
            self.look()

    def _read(self) -> None:
        if self._file is None:
            return
        try:
            now = stamp(self._file)
            if now == self._stamp:
                return
            configuration = scheduler_file.read(self._file)
            self._configured = unsafe_preemption(configuration, self._translation.scheduler_name)
            self._stamp = now
        except (OSError, scheduler_file.NoConfiguration) as error:
            self._stamp, self._configured = None, f"kube-scheduler's configuration is not known: {error}"

    async def _follow(self) -> None:
        """What happened before this replica started says nothing of the kube-scheduler of now."""
        listing = partial(self._watch.list_as, lambda event: event["metadata"]["uid"])
        while True:
            try:
                self._known.update(await listing())
                break
            except KubernetesError as error:
                self._health.says(_WATCH, error)
                await asyncio.sleep(_RETRY_S)
        async for change in self._watch.changes():
            if change.gone:
                self._known.discard(change.manifest["metadata"]["uid"])
            else:
                self.hears(change.manifest)
