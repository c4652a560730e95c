"""Notes on Nodes about containers that may outlive their Pods.

Every replica binds Pods, and only the leader sees that a Pod was deleted by force. The leader adds a
note, and writes the notes onto the Nodes for the other replicas and the next leader. A written note has
a number of seconds, because the clocks of replicas are not compared: each replica counts from the first
sight of the note.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator
from math import inf

from wellknown.lingering import LingeringContainers

_SAME_S = 2.0
"""A note that was written and read ends later by less."""

_Untils = dict[tuple[int, str], float]
"""By job and Pod: the end of the note, in the loop's time."""


class LingeringNotes:
    """The notes by Node, as known here and as written."""

    def __init__(self) -> None:
        self._notes: defaultdict[str, _Untils] = defaultdict(dict)
        self._written: dict[str, dict[LingeringContainers, float]] = {}
        """The notes on each Node, and their ends."""

    def add(self, node: str, containers: LingeringContainers) -> None:
        """Adds a note, or prolongs a known note."""
        self._prolong(node, containers, _now() + containers.seconds)

    def see(self, node: str, written: Iterable[LingeringContainers]) -> None:
        """Takes the notes of a version of a Node. Notes that are not written any more still count."""
        known, there = self._written.pop(node, {}), {}
        for each in written:
            there[each] = known[each] if each in known else self._first_seen(node, each)
        if there:
            self._written[node] = there

    def on(self, node: str) -> tuple[LingeringContainers, ...]:
        """Returns the notes on a Node that have not expired."""
        if node not in self._notes:  # as nearly always
            return ()
        now = _now()
        left = {key: until for key, until in self._notes.pop(node).items() if until > now}
        if left:
            self._notes[node] = left
        return tuple(LingeringContainers(*key, until - now) for key, until in left.items())

    def to_write(self) -> Iterator[tuple[str, tuple[LingeringContainers, ...]]]:
        """Yields the Nodes with outdated notes, and the notes to write."""
        now = _now()
        for node in self._notes.keys() | self._written.keys():
            notes, written = self.on(node), self._written.get(node, {})
            ends = {(each.job_id, each.pod): until for each, until in written.items()}
            late = {(each.job_id, each.pod): now + each.seconds - _SAME_S for each in notes}
            if (written and not notes) or any(late[key] > ends.get(key, -inf) for key in late):
                yield node, notes

    def _first_seen(self, node: str, containers: LingeringContainers) -> float:
        """Returns the end of a written note. The own end of a note that this replica wrote stays."""
        until, own = _now() + containers.seconds, self._notes.get(node, {})
        ends = own.get((containers.job_id, containers.pod), -inf)
        return ends if until <= ends + _SAME_S else self._prolong(node, containers, until)

    def _prolong(self, node: str, containers: LingeringContainers, until: float) -> float:
        key = containers.job_id, containers.pod
        self._notes[node][key] = max(until, self._notes[node].get(key, until))
        return self._notes[node][key]


def _now() -> float:
    return asyncio.get_running_loop().time()
