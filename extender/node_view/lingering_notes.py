"""Notes on Nodes about containers that may outlive their Pods.

After the forced deletion of a Pod, the Pod's containers may still run. Every replica binds Pods, but
only the leader notices such a deletion. So the leader writes a note to the Node, for the other replicas
and for the next leader.

The clocks of replicas may differ, so a written note has a number of seconds instead of a time. Each
replica counts these seconds from the moment when the replica first sees the number.

A Node is away while Kubernetes receives no heartbeats from the Node. The notes on such a Node do not
expire, because the kubelet may not know of the deletion. When the heartbeats return, the time of the
notes starts again.
"""

import asyncio
from collections.abc import Callable, Iterable
from math import ceil, inf
from typing import NamedTuple

import structlog

from wellknown.lingering import MAX_NOTES_PER_NODE, LingeringNote

_TOLERANCE_S = 2.0
"""Allowed difference between the end of a note in this replica and the end of the written note. Rounding
and the delay of the watch cause such differences."""

log = structlog.get_logger()


class _Time(NamedTuple):
    """Duration and end of a note."""

    seconds: float
    """The whole duration of the note. For a written note, this is the number on the Node; otherwise the
    longest known duration."""
    until: float
    """The time at which the note ends, by the clock."""


_Times = dict[LingeringNote, _Time]
"""The time of each note. In the key, `seconds` of the note are 0."""
_NONE = _Time(-inf, -inf)


def _loop_time() -> float:
    return asyncio.get_running_loop().time()


class LingeringNotes:
    """The notes of each Node: notes known to this replica, and notes written on the Node."""

    def __init__(self, clock: Callable[[], float] = _loop_time) -> None:
        self._clock = clock
        self._times: dict[str, _Times] = {}
        self._written: dict[str, _Times] = {}
        """The notes written on each Node. The time of such a note starts when this replica first sees
        the number of seconds."""
        self._away = set[str]()
        """Nodes from which Kubernetes receives no heartbeats."""

    def add(self, node: str, note: LingeringNote) -> None:
        """Adds a note, or prolongs a known note."""
        self._prolong(node, _key(note), note.seconds)

    def follow_node(self, node: str, written: Iterable[LingeringNote], *, away: bool = False) -> None:
        """Takes the written notes of a new version of a Node. A known note still counts if the new
        version lacks the note. `away`: True while Kubernetes receives no heartbeats from the Node."""
        if node in self._away and not away:
            for key, time in tuple(self._times.get(node, {}).items()):
                self._prolong(node, key, time.seconds)
            self._written.pop(node, None)
        (self._away.add if away else self._away.discard)(node)
        self.note_written(node, written)

    def drop_node(self, node: str) -> None:
        """Forgets the annotation of a deleted Node. The known notes count until their end."""
        self._away.discard(node)
        self._written.pop(node, None)

    def note_written(self, node: str, written: Iterable[LingeringNote]) -> None:
        """Records the notes written on a Node. The time of a note starts again if the number of seconds
        is new."""
        known, there, now = self._written.pop(node, {}), _Times(), self._clock()
        for note in written:
            key = _key(note)
            time = known.get(key)
            if time is None or time.seconds != note.seconds:
                time = _Time(note.seconds, now + note.seconds)
                own = self._times.get(node, {}).get(key, _NONE)
                if time.until > own.until + _TOLERANCE_S:
                    self._prolong(node, key, note.seconds)
            there[key] = time
        if there:
            self._written[node] = there

    def on(self, node: str) -> tuple[LingeringNote, ...]:
        """Returns a Node's notes that have not expired."""
        if node not in self._times:  # the usual case
            return ()
        times = self._without_expired(node)
        return tuple(each._replace(seconds=self._left(node, time)) for each, time in times.items())

    def outdated(self) -> list[str]:
        """Returns the Nodes whose written notes differ from the known notes."""
        nodes = self._times.keys() | self._written.keys()
        return [node for node in nodes if self.to_write(node) is not None]

    def to_write(self, node: str) -> tuple[LingeringNote, ...] | None:
        """Returns the notes to write onto a Node, with whole seconds. Returns None if the Node already
        has these notes."""
        written, found, differs = self._written.get(node, {}), list[LingeringNote](), False
        for note in self.on(node):
            time = written.get(_key(note), _NONE)
            is_late = note.seconds > self._left(node, time) + _TOLERANCE_S
            seconds = float(ceil(note.seconds))
            if is_late and seconds == time.seconds:
                seconds += 1.0  # other replicas notice only a changed number
            found.append(note._replace(seconds=seconds))
            differs = differs or is_late
        return tuple(found) if differs or len(found) != len(written) else None

    def _left(self, node: str, time: _Time) -> float:
        """Returns the seconds until the end of a note. While the Node is away, this is the whole
        duration, because the kubelet may not know of the deletion."""
        return time.seconds if node in self._away else time.until - self._clock()

    def _without_expired(self, node: str) -> _Times:
        times, now = self._times.pop(node, {}), self._clock()
        if node not in self._away:
            times = {each: time for each, time in times.items() if time.until > now}
        if times:
            self._times[node] = times
        return times

    def _prolong(self, node: str, key: LingeringNote, seconds: float) -> None:
        times = self._without_expired(node)
        before, until = times.get(key, _NONE), self._clock() + seconds
        times[key] = _Time(max(seconds, before.seconds), max(until, before.until))
        if len(times) > MAX_NOTES_PER_NODE:
            first = min(times, key=lambda each: times[each].until)
            del times[first]
            most = f"more than {MAX_NOTES_PER_NODE} notes on the Node"
            log.warning("note on a Node dropped", node=node, note=first.pod, error=most)
        self._times[node] = times


def _key(note: LingeringNote) -> LingeringNote:
    return note._replace(seconds=0.0)
