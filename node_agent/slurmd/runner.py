"""Runs the slurmd Pod of this Node. An annotation of the Node says which slurmd Pod the extender's
leader has assigned."""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from math import inf
from typing import Any, Final

import structlog

from kubernetes_client.errors import Conflict, KubernetesError, NotFound, Rejected
from kubernetes_client.protocol import Kubernetes, Manifest
from kubernetes_client.watch import ResourceWatch
from node_agent.slurmd import images
from node_agent.slurmd.manifest import Found, finds_gres, manifest
from node_agent.slurmd.step import ENDED, Step, began, in_words, in_words_of_orphans, starts, step
from service.periodic import periodically
from wellknown import node_mapping
from wellknown.conditions import condition
from wellknown.names import ON_HOST, REVISION, SLURMD, SLURMD_LABEL, SLURMD_PROBLEM
from wellknown.quoting import words_of
from wellknown.slurmd_pod import Assignment

log = structlog.get_logger()

_LOOK_S: Final = 5.0
_AGAIN_S: Final = 60.0
"""Shortest time between two removals of Pods that have ended by themselves. A Pod that ends sooner after
a removal stays until this time is over. So people and the extender can read the reason, and the agent
does not recreate the Pod very often."""
_LOADED_WITHIN_S: Final = 600.0
"""Time in which the drivers of a new Node may still be loading. After this time, the agent reports
missing drivers as a problem."""
_PULLED_WITHIN_S: Final = 60.0
"""Time for which pulls of images may fail before the agent reports the failure as a problem."""
_SHOWN: Final = 80
_FINE: Final = "the Node's slurmd Pod is as it was assigned"
_WATCH: Final = "watch of the Node"
_ACTING: Final = "slurmd Pod"

Report = Callable[[str, Exception | str | None], object]


@dataclass(frozen=True, slots=True)
class Here:
    """Functions by which other parts of the agent report about the Node."""

    pod: Callable[[], Manifest | None]
    """Returns the slurmd Pod of the Node, from kube-apiserver."""
    pull: Callable[[], Manifest | None]
    """Returns the Pod that pulls the images of the next slurmd Pod, from kube-apiserver."""
    jobs: Callable[[str], Collection[str]]
    """Takes the uid of a Pod, and returns Slurm's jobs with processes in this Pod."""
    orphans: Callable[[], Collection[str] | None]
    """Returns the uids of earlier slurmd Pods that kube-apiserver no longer has, but that still have
    processes. Returns None while the Node's Pods are unknown. Raises OSError."""
    machine: Callable[[], tuple[str, int]]
    """Returns the devices in the form of slurmd's Gres=, and the number of CPUs per core."""
    awaited: Callable[[], str]
    """Returns the reason why a device is still unknown, or "" if all devices are known."""


class SlurmdRunner:
    """Makes the slurmd Pod. Ends the Pod only if no processes of Slurm's jobs run in the Pod."""

    def __init__(
        self,
        kubernetes: Kubernetes,
        node: str,
        namespace: str,
        name_label: str,
        here: Here,
        report: Report,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Parameter `report` gets the name of a component and its problem. After the problem has ended,
        `report` gets None."""
        self._clock = clock
        self._ended_at = -inf
        """Time of the last removal of a Pod that had ended by itself."""
        self._awaits_since = inf
        """Time since which the agent cannot make the Pod, because a driver is missing."""
        self._unpulled_since = inf
        """Time since which images cannot be pulled."""
        self._kubernetes = kubernetes
        self._node = node
        self._namespace = namespace
        self._name_label = name_label
        self._here = here
        self._report = report
        report_watch = partial(report, _WATCH)
        self._watch = ResourceWatch(kubernetes, "nodes", f"metadata.name={node}", report_watch)
        self._seen: Manifest | None = None
        """The Node of the last watch event."""
        self._news = asyncio.Event()
        self._reported: tuple[str, bool] | None = None
        """Message and status of the Node's condition, or None while unknown."""

    @property
    def starts(self) -> bool:
        """Returns True while slurmd starts on this Node, so that slurmd's list of devices may be
        missing. Returns False for slurmd on the host, because the agent does not know when this slurmd
        started."""
        if self._on_host:
            return False
        return starts(self._here.pod(), datetime.now(UTC), time.clock_gettime(time.CLOCK_BOOTTIME))

    @property
    def began(self) -> float:
        """Returns the time at which slurmd's container started, in UNIX seconds. An older list of
        devices belongs to an earlier slurmd. If no such container runs, returns 0."""
        since = None if self._on_host else began(self._here.pod())
        return 0.0 if since is None else since.timestamp()

    @property
    def _on_host(self) -> bool:
        labels = (self._seen or {"metadata": {}})["metadata"].get("labels") or {}
        return not self._namespace or labels.get(SLURMD_LABEL) == ON_HOST

    def wake(self) -> None:
        """Wakes the loop after a change of the Node's Pods."""
        self._news.set()

    async def run(self) -> None:
        """Runs for ever."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow())
            report = partial(self._report, _ACTING)
            tasks.create_task(
                periodically(self._look, self._pause, outlives=(KubernetesError, OSError), report=report)
            )

    async def _follow(self) -> None:
        async for change in self._watch.changes():
            self._seen = None if change.gone else change.manifest
            self._news.set()

    async def _pause(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_S):
                await self._news.wait()
        self._news.clear()

    async def _look(self) -> None:
        node = self._seen
        if node is None:
            return
        annotations = node["metadata"].get("annotations") or {}
        assigned = Assignment.on(annotations)
        if assigned is None and SLURMD in annotations:  # the annotation of a later release
            words = f"the annotation {SLURMD} is not understood: {annotations[SLURMD][:_SHOWN]}"
            await self._tell(node, words)
        else:
            await self._act(node, assigned)

    async def _act(self, node: Manifest, assigned: Assignment | None) -> None:
        pod = self._here.pod()
        jobs = self._here.jobs(pod["metadata"]["uid"]) if pod is not None else ()
        match step(assigned, pod, jobs):
            case Step.MAKE:
                assert assigned is not None
                await self._make(node, assigned)
            case Step.END:
                assert pod is not None
                if await self._has_images(node, assigned, pod):
                    await self._end(pod)
            case Step.TAKE_AWAY:
                assert pod is not None
                await self._take_away(pod)
            case Step.WAIT:
                await self._tell(node, in_words(jobs))
            case Step.NOTHING:
                await self._end_pull(pod)
                await self._tell(node, "")

    async def _has_images(self, node: Manifest, assigned: Assignment | None, slurmd: Manifest) -> bool:
        """Returns True if the images of the next slurmd Pod are on the Node, or if no next Pod is
        assigned. The images must be on the Node before slurmd ends, because slurmctld ends the jobs of a
        node whose slurmd is absent for SlurmdTimeout. The message of a problem names the revision. The
        extender counts a problem against a revision only if the message has this name."""
        if assigned is None or not assigned.revision:
            return True
        pod = self._here.pull()
        if pod is None:
            return await self._pull(node, assigned, slurmd)
        if (pod["metadata"].get("labels") or {}).get(REVISION) != assigned.revision:
            await self._end(pod)
            return False
        if images.pulled(pod):
            self._unpulled_since = inf
            return True
        await self._tell_images(node, assigned, images.problem(pod))
        if (pod.get("status") or {}).get("phase") in ENDED:
            await self._take_away(pod)
        return False

    async def _pull(self, node: Manifest, assigned: Assignment, slurmd: Manifest) -> bool:
        """Makes the Pod that pulls the missing images. Returns True if no image is missing."""
        revision = await self._kubernetes.read_revision(self._namespace, assigned.revision)
        if revision is None:
            await self._tell_no_revision(node, assigned)
            return False
        try:
            spec = revision["data"]["template"]["spec"]
            containers = images.missing(revision["data"]["template"], slurmd)
            if containers:
                pod = images.pull_pod(assigned, containers, spec, node["metadata"], self._namespace)
                await self._kubernetes.create_pod(self._namespace, pod)
                log.info("pulls images", revision=assigned.revision)
        except Conflict:  # the Pod exists already
            return False
        except (Rejected, KeyError, TypeError, ValueError, AttributeError) as error:
            await self._tell_images(node, assigned, words_of(error))
            return False
        return not containers

    async def _tell_images(self, node: Manifest, assigned: Assignment, words: str) -> None:
        """Reports the reason why images are missing. A registry may fail for a moment while slurmd still
        runs. So only a lasting failure is a problem."""
        self._unpulled_since = min(self._unpulled_since, self._clock()) if words else inf
        text = f"images of {assigned.revision}: {f'not pulled: {words}' if words else 'being pulled'}"
        await self._tell(node, text, holds=self._clock() - self._unpulled_since >= _PULLED_WITHIN_S)

    async def _end_pull(self, slurmd: Manifest | None) -> None:
        """Deletes the Pod that pulled images, after the agent has made the new slurmd Pod. Until then,
        the Pod must stay, because the kubelet may remove images without a container."""
        pod = self._here.pull()
        leaves = slurmd is not None and "deletionTimestamp" in slurmd["metadata"]
        if pod is not None and "deletionTimestamp" not in pod["metadata"] and not leaves:
            await self._end(pod)

    async def _tell_no_revision(self, node: Manifest, assigned: Assignment) -> None:
        await self._tell(
            node, f"there is no ControllerRevision {assigned.revision} in {self._namespace}"
        )

    async def _make(self, node: Manifest, assigned: Assignment) -> None:
        """Makes the slurmd Pod. If the pool names no GRES, the agent first waits until drivers report
        all GPUs, because Slurm reads a node's devices only once. The agent also waits until no process
        of an earlier slurmd Pod is left. If such a Pod was deleted by force, jobs of the Pod may still
        use cores and devices."""
        if (orphans := self._here.orphans()) is None:
            return
        if orphans:
            await self._tell(node, in_words_of_orphans(orphans))
            return
        revision = await self._kubernetes.read_revision(self._namespace, assigned.revision)
        if revision is None:
            await self._tell_no_revision(node, assigned)
        elif finds_gres(revision["data"]) and (awaited := self._here.awaited()):
            self._awaits_since = min(self._awaits_since, self._clock())
            late = self._clock() - self._awaits_since >= _LOADED_WITHIN_S
            words = f"no slurmd Pod is made yet: {awaited}; with slurm.gres in the pool it would be"
            await self._tell(node, words, holds=late)
        else:
            self._awaits_since = inf
            await self._tell(node, await self._create(node, assigned, revision["data"]))

    async def _create(self, node: Manifest, assigned: Assignment, data: Mapping[str, Any]) -> str:
        """Makes the slurmd Pod with the data of a revision. Returns the reason of a failure, or "" if
        the Pod was made."""
        metadata = node["metadata"]
        labels = metadata.get("labels") or {}
        gres, threads = self._here.machine()
        found = Found(
            node,
            node_mapping.slurm_name(metadata["name"], labels, self._name_label),
            gres,
            threads,
            await self._daemons(),
        )
        try:
            pod = manifest(assigned, data, found, self._namespace)
            await self._kubernetes.create_pod(self._namespace, pod)
        except Conflict:  # the Pod exists already
            return ""
        except Rejected as error:
            return f"kube-apiserver does not take the slurmd Pod: {error}"
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            return f"no slurmd Pod can be made of {assigned.revision}: {words_of(error)}"
        log.info("slurmd Pod made", revision=assigned.revision)
        return ""

    async def _daemons(self) -> Sequence[Manifest]:
        listed = await self._kubernetes.list("pods", f"spec.nodeName={self._node}")
        return [
            each["spec"]
            for each in listed.get("items") or ()
            if any(
                owner.get("kind") == "DaemonSet" and owner.get("controller")
                for owner in each["metadata"].get("ownerReferences") or ()
            )
        ]

    async def _end(self, pod: Manifest) -> None:
        """Deletes the Pod with the Pod's own grace period, so that a job that has just started can end
        by itself."""
        metadata = pod["metadata"]
        grace_s = pod["spec"].get("terminationGracePeriodSeconds", 30)
        with suppress(Conflict):
            preconditions = {"uid": metadata["uid"]}
            await self._kubernetes.delete_pod(self._namespace, metadata["name"], preconditions, grace_s)
            log.info("Pod ended", pod=metadata["name"])

    async def _take_away(self, pod: Manifest) -> None:
        if self._clock() - self._ended_at >= _AGAIN_S:
            await self._end(pod)
            self._ended_at = self._clock()

    async def _tell(self, node: Manifest, problem: str, *, holds: bool = True) -> None:
        """Writes the Node's condition. If `holds` is False, the condition has the message, but its
        status stays False, because the message is not a problem yet."""
        holds = holds and bool(problem)
        if (problem, holds) == self._reported:
            return
        known = (node.get("status") or {}).get("conditions") or ()
        before = next((each for each in known if each["type"] == SLURMD_PROBLEM), None)
        if before is None and not problem:
            self._reported = problem, holds
            return
        changed = before is None or (before.get("status") == "True") != holds
        reason = "NotAsAssigned" if problem else "AsAssigned"
        entry = condition(
            SLURMD_PROBLEM, reason, problem or _FINE, datetime.now(UTC), holds=holds, changed=changed
        )
        with suppress(NotFound):
            await self._kubernetes.patch_node_status(self._node, {"status": {"conditions": [entry]}})
        self._reported = problem, holds
