"""Evictions in kube-scheduler's Events, and the order in which `preemption_check` looks at them.

Anybody who may write Events in a namespace can forge any number of evictions there, and each named Pod
costs a call of kube-apiserver. So all Events of one Pod count once, and namespaces take turns. Source of
the Event's words, 1.31 and 1.37: k8s.io/kubernetes pkg/scheduler/framework/preemption."""

import asyncio
import re
from dataclasses import dataclass, field
from typing import Final, Self

from kubernetes_client.protocol import Manifest
from wellknown.log_fields import PodName

_BY: Final = re.compile(r"Preempted by pod (?P<uid>[\w-]{1,63}) on node (?P<node>[a-z0-9.-]{1,253})")
"""A uid, and a name as Nodes have them: they become parts of a field selector."""


@dataclass(frozen=True, slots=True)
class Eviction:
    """One evicted Pod: for which other Pod it went, by its uid, and from which Node."""

    victim: PodName
    preemptor: str
    node: str

    @classmethod
    def of(cls, event: Manifest) -> Self | None:
        """Returns the eviction in an Event; None without a preemptor, or a Pod of its namespace."""
        about, by = event["involvedObject"], _BY.fullmatch(event.get("message") or "")
        named = all(about.get(each) for each in PodName._fields)
        if by is None or not named or about["namespace"] != event["metadata"]["namespace"]:
            return None
        return cls(PodName.of(about), by["uid"], by["node"])


@dataclass(slots=True)
class Preemptor:
    """A Pod for which Pods of one namespace went, as Events say."""

    namespace: str
    """Of the Pods that went."""
    uid: str
    node: str = ""
    """The Node that it was given room on last."""
    victims: list[PodName] = field(default_factory=list)


class Turns:
    """Preemptors to look for: at most `most` of one namespace, with at most `most` victims each."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lines: dict[str, dict[str, Preemptor]] = {}
        """By the victims' namespace, the one whose turn is next first, and by uid in their order."""
        self._came = asyncio.Event()

    def __bool__(self) -> bool:
        return bool(self._lines)

    def add(self, eviction: Eviction) -> bool:
        """Takes an eviction up. Tells whether there was a place for it."""
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
        """Returns the preemptor whose turn it is, as soon as there is one. It stays first of its
        namespace until it is `over`; the next turn is another namespace's."""
        while not self._lines:
            self._came.clear()
            await self._came.wait()
        namespace = next(iter(self._lines))
        line = self._lines[namespace] = self._lines.pop(namespace)
        return next(iter(line.values()))

    def over(self, preemptor: Preemptor) -> None:
        """Forgets a preemptor that was looked for."""
        line = self._lines[preemptor.namespace]
        del line[preemptor.uid]
        if not line:
            del self._lines[preemptor.namespace]
