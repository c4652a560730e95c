"""The PodGroups of new Pods. The Pods of a PodGroup are a gang, unless the policy of the PodGroup is
basic.

Only the PodGroup has the number of Pods. So /mutate reads the PodGroup of a new Pod, and writes the gang
and the number onto the Pod. The gang keeps this number if the PodGroup changes later.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable
from math import inf
from typing import Any, Final, NamedTuple

from extender.pod_request.gang import CONTROLLERS, POD_GROUP, native_group
from kubernetes_client.errors import KubernetesError
from kubernetes_client.protocol import Manifest

ReadPodGroup = Callable[[str, str, str], Awaitable[Manifest | None]]
"""`Kubernetes.read_pod_group`."""

_Key = tuple[str, str, str]
"""Version of the API group, namespace and name of a PodGroup."""

_LONGEST_S: Final = 2.0
"""Longest time for a read. kube-apiserver waits 5 s for the webhook."""
_FRESH_S: Final = 1.0
_AT_ONCE: Final = 4
_MOST_KNOWN: Final = 1_000
_NATIVE: Final = "scheduling.k8s.io/v1beta1"
_COSCHEDULING: Final = "scheduling.x-k8s.io/v1alpha1"
_LABEL: Final = CONTROLLERS[POD_GROUP].name
_NAME: Final = re.compile(r"[a-z0-9](?:[-.a-z0-9]{0,251}[a-z0-9])?", re.ASCII)
"""Names of PodGroups. /mutate comes before kube-apiserver's checks, and the name is a part of a path."""


class Joined(NamedTuple):
    """A new Pod after a look at its PodGroup."""

    pod: Manifest
    """The Pod, with annotations that name the gang."""
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class PodGroups:
    """The PodGroups of a cluster, read on demand. The Pods of a group come together, so a read counts
    for `_FRESH_S`. The reads share the connections of the leader's writes, so only `_AT_ONCE` reads run
    at the same time."""

    def __init__(self, read: ReadPodGroup) -> None:
        self._read = read
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._reads = dict[_Key, tuple[float, asyncio.Task[Manifest | None]]]()
        """The last read of each PodGroup, and the time until which the read counts."""

    async def join(self, pod: Manifest, prefix: str) -> Joined:
        """Returns a new Pod as a member of the gang of its PodGroup. A Pod without a PodGroup stays as
        it is. `prefix` is the prefix of the annotations."""
        metadata = pod["metadata"]
        native, label = native_group(pod["spec"]), (metadata.get("labels") or {}).get(_LABEL)
        place, version = (
            ("spec.schedulingGroup", _NATIVE) if native else (f"label {_LABEL}", _COSCHEDULING)
        )
        name = native or label
        if not name:
            return Joined(pod)
        try:
            named = _NAME.fullmatch(name)
            group = await self._find((version, metadata["namespace"], name)) if named else None
        except (KubernetesError, TimeoutError) as error:
            why = error if str(error) else f"no answer within {_LONGEST_S:.0f} s"
            return Joined(pod, (f"{place}: PodGroup {name} could not be read: {why}",))
        if group is not None:
            about = f"{place}: PodGroup {name}"
            return _member(pod, _size(group), about, prefix, may_leave=not native)
        missing = f"{place}: there is no PodGroup {name}"
        given = (metadata.get("annotations") or {}).get(f"{prefix}gang")
        if native or given == POD_GROUP:
            return Joined(pod, (f"{missing}: create the PodGroup before its Pods",))
        return Joined(pod, warnings=(f"{missing}: the Pod is placed by itself",))

    async def _find(self, key: _Key) -> Manifest | None:
        """Returns a PodGroup; None without a PodGroup. Raises KubernetesError and TimeoutError."""
        loop = asyncio.get_running_loop()
        until, read = self._reads.get(key, (-inf, None))
        if read is None or loop.time() >= until:
            if len(self._reads) >= _MOST_KNOWN:
                self._reads.clear()
            read = loop.create_task(self._in_turn(key))
            read.add_done_callback(_retrieved)
            self._reads[key] = loop.time() + _FRESH_S, read
        async with asyncio.timeout(_LONGEST_S):
            return await asyncio.shield(read)

    async def _in_turn(self, key: _Key) -> Manifest | None:
        async with self._turns:
            found = await self._read(*key)
        if found is None:  # the author may create the PodGroup next
            self._reads.pop(key, None)
        return found


def _retrieved(read: asyncio.Task[Manifest | None]) -> None:
    """Marks an error as seen, because all callers may have stopped waiting."""
    if not read.cancelled():
        read.exception()


def assumed(template: Manifest, prefix: str) -> dict[str, str]:
    """Returns annotations that a Pod template gets for a check: the template's Pods may get a PodGroup,
    and the size is not known yet."""
    given = (template["metadata"].get("annotations") or {}).get(f"{prefix}gang")
    if given == POD_GROUP:
        return {f"{prefix}gang-size": "1"}
    return {f"{prefix}gang": "none"} if given is None and native_group(template["spec"]) else {}


def _size(group: Manifest) -> int | None:
    """Returns the number of Pods that a PodGroup starts together; None for the policy basic."""
    spec = group.get("spec") or {}
    if "minMember" in spec:  # of the plugin coscheduling
        return int(spec["minMember"])
    gang = (spec.get("schedulingPolicy") or {}).get("gang")
    return None if gang is None else int(gang["minCount"])


def _member(pod: Manifest, size: int | None, group: str, prefix: str, *, may_leave: bool) -> Joined:
    """Returns a Pod as a member of a gang of `size` Pods; None for no gang. With `may_leave`, the
    annotation `gang: none` counts, because kube-scheduler does not hold the Pod back."""
    annotations = pod["metadata"].get("annotations") or {}
    given = annotations.get(f"{prefix}gang")
    if size is None:
        if given == POD_GROUP:
            return Joined(pod, (f"{group} has the policy basic, and is no gang: remove {prefix}gang",))
        return _with(pod, {f"{prefix}gang": "none"} if given is None else {})
    if given == "none" and size > 1 and not may_leave:
        return Joined(pod, (f"{group} starts {size} Pods together: remove {prefix}gang: none",))
    if given not in (None, POD_GROUP):
        return Joined(pod)  # the author has named another gang
    number = annotations.get(f"{prefix}gang-size")
    if number not in (None, str(size)):
        problem = f"{group} starts {size} Pods together: remove {prefix}gang-size: {number}"
        return Joined(pod, (problem,))
    return _with(pod, {f"{prefix}gang": POD_GROUP, f"{prefix}gang-size": str(size)})


def _with(pod: Manifest, added: dict[str, Any]) -> Joined:
    metadata = pod["metadata"]
    annotations = (metadata.get("annotations") or {}) | added
    return Joined({**pod, "metadata": {**metadata, "annotations": annotations}})
