"""Notes on Nodes about containers that may outlive their Pods.

Every replica binds Pods, and only the leader sees that a Pod was deleted by force. The leader adds a
note, and writes the notes onto the Nodes for the other replicas and the next leader. A written note has
a number of seconds, because the clocks of replicas are not compared: each replica counts from the first
sight of the note. While Kubernetes does not hear from a Node, its notes do not expire: the kubelet may
not know of the deletion. The time begins again when Kubernetes hears from the Node.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator
from math import inf

from wellknown.lingering import MOST, LingeringContainers

_SAME_S = 2.0
"""A note that was written and read ends later by less."""

_Ends = dict[LingeringContainers, float]
"""By note without the seconds: the end of the note, in the loop's time."""


class LingeringNotes:
    """The notes by Node, as known here and as written."""

    def __init__(self) -> None:
        self._ends: defaultdict[str, _Ends] = defaultdict(dict)
        self._written: dict[str, _Ends] = {}
        """The notes on each Node, with the ends by the time of the first sight."""
        self._away = set[str]()
        """Nodes that Kubernetes does not hear from."""

    def add(self, node: str, containers: LingeringContainers) -> None:
        """Adds a note, or prolongs a known note. A Node has a limited number of notes: the notes with
        the latest end are kept."""
        self._prolong(node, _key(containers), _now() + containers.seconds)
        ends = self._ends[node]
        if len(ends) > MOST:
            del ends[min(ends, key=lambda each: ends[each])]

    def see(self, node: str, written: Iterable[LingeringContainers], *, away: bool = False) -> None:
        """Takes the notes of a version of a Node. Notes that are not written any more still count."""
        known, there = self._written.pop(node, {}), _Ends()
        is_back, now = node in self._away and not away, _now()
        for each in written:
            key = _key(each)
            if is_back or key not in known:
                there[key] = self._first_seen(node, key, now + each.seconds)
            else:
                there[key] = known[key]
        if there:
            self._written[node] = there
        (self._away.add if away and there else self._away.discard)(node)

    def on(self, node: str) -> tuple[LingeringContainers, ...]:
        """Returns the notes on a Node that have not expired."""
        if node not in self._ends:  # as nearly always
            return ()
        now = _now()
        least = now + _SAME_S if node in self._away else now
        ends = {each: max(until, least) for each, until in self._ends.pop(node).items()}
        left = {each: until for each, until in ends.items() if until > now}
        if left:
            self._ends[node] = left
        return tuple(each._replace(seconds=until - now) for each, until in left.items())

    def to_write(self) -> Iterator[tuple[str, tuple[LingeringContainers, ...]]]:
        """Yields the Nodes with outdated notes, and the notes to write."""
        now = _now()
        for node in self._ends.keys() | self._written.keys():
            notes, written = self.on(node), self._written.get(node, {})
            late = (
                now + each.seconds - _SAME_S > written.get(_key(each), -inf)
                for each in notes
                if node not in self._away or _key(each) not in written
            )
            if (written and not notes) or any(late):
                yield node, notes

    def _first_seen(self, node: str, key: LingeringContainers, until: float) -> float:
        """Returns the end of a written note. The own end of a note that this replica wrote stays."""
        own = self._ends.get(node, {}).get(key, -inf)
        return own if until <= own + _SAME_S else self._prolong(node, key, until)

    def _prolong(self, node: str, key: LingeringContainers, until: float) -> float:
        self._ends[node][key] = max(until, self._ends[node].get(key, until))
        return self._ends[node][key]


def _key(containers: LingeringContainers) -> LingeringContainers:
    return containers._replace(seconds=0.0)


def _now() -> float:
    return asyncio.get_running_loop().time()
