"""Checks on every replica that kube-scheduler evicts no Pod for a Pod that Slurm has not admitted.

The check has two sources. The first source is the file of kube-scheduler's configuration, if the file is
known. The second source is an Event (`Preempted`) for each Pod that kube-scheduler evicts. The message
of the Event has the uid of the preemptor, the Pod that gets the room; the field `related` of the Event
is empty. /preempt offers no victims for a managed Pod (`preempt.route`), so one such Event for a managed
preemptor proves that kube-scheduler did not ask /preempt. The check ignores Events for a PodGroup
(1.37): for a PodGroup, kube-scheduler does not ask /preempt, but /filter has admitted the Pods before.
Users can forge Events, but the number of requests to kube-apiserver does not grow with the number of
Events."""

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
"""Pause between two preemptors. Each preemptor needs up to two lists of Pods."""
_MOST: Final = 500
"""Maximum number of waiting preemptors for a namespace, and of victims for a preemptor."""
_LASTS_S: Final = 600.0
"""Time for which an eviction is reported as a problem. The problem ends after this time, because no
Event reports that a person has fixed kube-scheduler's configuration."""
_FIX: Final = (
    "; disable DefaultPreemption in kube-scheduler's profile, or give slurm-extender's entry in its"
    " `extenders` `preemptVerb: preempt`"
)

log = structlog.get_logger()


class PreemptionCheck:
    """The check for unsafe preemption. `file` is the file of the KubeSchedulerConfiguration; None if not
    known. `counted` is called for each Pod that was evicted for a Pod that Slurm has not admitted."""

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
        """Uids of the known Events."""
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
        """Reads the configuration file if the file has changed, and reports the current problem."""
        self._read()
        if self._seen is not None and self._clock() - self._seen_at >= _LASTS_S:
            self._seen = None
        words = self._configured or self._seen
        self._health.says(PART, words and words + _FIX, alarm=True)

    def add_event(self, event: Manifest) -> None:
        """Adds the eviction in a new Event. The eviction is checked in its turn."""
        uid, eviction = event["metadata"]["uid"], Eviction.of(event)
        if eviction is None or uid in self._known:
            return
        self._known.add(uid)
        if not self._turns.add(eviction):
            namespace = eviction.victim.namespace
            words = f"namespace {namespace} has too many of them to check: find out what writes them"
            self._health.says(_LOOKS, words)

    async def _look_for_preemptors(self) -> None:
        """Checks preemptors one after the other. After an error of kube-apiserver, checks the same
        preemptor again."""
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
        """Reports the evicted Pods if the preemptor is a managed Pod. For a preemptor that is gone
        (None), reports the evicted Pods only if the extender manages all Pods of the scheduler."""
        if manifest is None:
            if self._translation.scope.everything:  # all Pods of this profile are managed
                self._note(named, f"the Pod with uid {named.uid}")
        elif self._translation.manages(manifest):
            metadata = manifest["metadata"]
            self._note(named, f"{metadata['namespace']}/{metadata['name']}")

    async def _preemptor(self, named: Preemptor) -> Manifest | None:
        """Returns the preemptor's manifest if kube-scheduler has nominated the Node of the eviction for
        the Pod, or has bound the Pod to this Node; otherwise None."""
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
        """Reports an eviction and counts all victims. If many evictions come at once, the first eviction
        is the reported problem."""
        for victim in named.victims:
            self._counted()
            log.warning("evicted by kube-scheduler", **about(victim), preemptor=preemptor)
        self._seen_at = self._clock()
        if self._seen is None:
            victim = named.victims[0]
            self._seen = (
                f"kube-scheduler has evicted {victim.namespace}/{victim.name} for {preemptor}, a Pod"
                " for Slurm to place, and has not asked /preempt"
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
            self._stamp, self._configured = None, f"kube-scheduler's configuration is unknown: {error}"

    async def _follow(self) -> None:
        """Follows new Events. Skips the Events from before the start of this replica, because such
        Events say nothing about the current kube-scheduler."""
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
                self.add_event(change.manifest)
