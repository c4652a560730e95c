"""Reads evictions from kube-scheduler's Events, and decides the order in which `preemption_check` checks
the evictions.

A user with the right to write Events in a namespace can forge any number of evictions in the namespace.
The check of each preemptor (the Pod that gets the room) costs requests to kube-apiserver. So all Events
of a namespace with the same preemptor cost one check, and the namespaces take turns. Source of the
Event's message, 1.31 and 1.37: k8s.io/kubernetes pkg/scheduler/framework/preemption."""

import asyncio
import re
from dataclasses import dataclass, field
from typing import Final, Self

from kubernetes_client.protocol import Manifest
from wellknown.log_fields import PodName

_BY: Final = re.compile(r"Preempted by pod (?P<uid>[\w-]{1,63}) on node (?P<node>[a-z0-9.-]{1,253})")
"""Pattern of the message, with a uid and a Node's name. Both have only characters that are safe in a
field selector."""


@dataclass(frozen=True, slots=True)
class Eviction:
    """An eviction: the evicted Pod, the uid of the Pod with the higher priority, and the Node."""

    victim: PodName
    preemptor: str
    node: str

    @classmethod
    def of(cls, event: Manifest) -> Self | None:
        """Returns the eviction in an Event. Returns None if the message names no preemptor, or if the
        Event names no Pod of its own namespace."""
        about, by = event["involvedObject"], _BY.fullmatch(event.get("message") or "")
        named = all(about.get(each) for each in PodName._fields)
        if by is None or not named or about["namespace"] != event["metadata"]["namespace"]:
            return None
        return cls(PodName.of(about), by["uid"], by["node"])


@dataclass(slots=True)
class Preemptor:
    """A Pod for which Pods of a namespace were evicted, according to Events."""

    namespace: str
    """Namespace of the evicted Pods."""
    uid: str
    node: str = ""
    """The Node of the last eviction."""
    victims: list[PodName] = field(default_factory=list)


class Turns:
    """Preemptors to check: at most `most` for a namespace, each with at most `most` victims."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lines: dict[str, dict[str, Preemptor]] = {}
        """Preemptors by the victims' namespace and by uid. The first namespace has the next turn."""
        self._came = asyncio.Event()

    def __bool__(self) -> bool:
        return bool(self._lines)

    def add(self, eviction: Eviction) -> bool:
        """Adds an eviction. Returns False if the limit is reached."""
        namespace = eviction.victim.namespace
        line = self._lines.setdefault(namespace, {})
        found = line.get(eviction.preemptor)
        if found is None and len(line) < self._most:
            found = line[eviction.preemptor] = Preemptor(namespace, eviction.preemptor)
        if found is None or len(found.victims) >= self._most:
            return False
        found.node = eviction.node
        found.victims.append(eviction.victim)
        self._came.set()
        return True

    async def next(self) -> Preemptor:
        """Waits until there is a preemptor to check, and returns the next preemptor. The preemptor stays
        the first of its namespace until the call of `over`. The next turn goes to another namespace."""
        while not self._lines:
            self._came.clear()
            await self._came.wait()
        namespace = next(iter(self._lines))
        line = self._lines[namespace] = self._lines.pop(namespace)
        return next(iter(line.values()))

    def over(self, preemptor: Preemptor) -> None:
        """Removes a checked preemptor."""
        line = self._lines[preemptor.namespace]
        del line[preemptor.uid]
        if not line:
            del self._lines[preemptor.namespace]
