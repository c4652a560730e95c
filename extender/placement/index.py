"""The records of all placeholders: each is found by its uid, its state, and the Node that it holds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from extender.placement.placeholder import Placeholder
from extender.placement.states import State


class Records:
    """One record for each uid; what is put in replaces the one before."""

    def __init__(self) -> None:
        self._by_uid: dict[str, Placeholder] = {}
        self._in: dict[State, dict[str, None]] = {state: {} for state in State}
        """The uids of those in each state, in the order in which they came into it."""
        self._on: defaultdict[str, set[str]] = defaultdict(set)
        """Node -> the uids of those that are there, or may yet be bound there."""
        self._lingering: set[str] = set()
        """The uids of those whose containers may outlive them."""

    def __iter__(self) -> Iterator[Placeholder]:
        return iter(self._by_uid.values())

    def __getitem__(self, uid: str) -> Placeholder:
        return self._by_uid[uid]

    def get(self, uid: str) -> Placeholder | None:
        """Returns a record, None where there is none."""
        return self._by_uid.get(uid)

    def of(self, *states: State) -> list[Placeholder]:
        """Returns those in some states: one state after the other, in each the oldest first."""
        return [self._by_uid[uid] for state in states for uid in self._in[state]]

    def any_of(self, state: State) -> bool:
        """Tells whether there is one in a state."""
        return bool(self._in[state])

    def holding(self, node: str) -> tuple[Placeholder, ...]:
        """Returns those that hold a Node (`Placeholder.holds`)."""
        return tuple(self._by_uid[uid] for uid in self._on.get(node, ()))

    def lingering(self, node: str) -> tuple[Placeholder, ...]:
        """Returns those of them whose containers may outlive them: mostly there are none anywhere."""
        if not self._lingering:
            return ()
        return tuple(each for each in self.holding(node) if each.member.lingers_until)

    def put(self, record: Placeholder) -> None:
        """Stores a record."""
        uid = record.pod.uid
        before = self._by_uid.get(uid)
        self._by_uid[uid] = record
        (self._lingering.add if record.member.lingers_until else self._lingering.discard)(uid)
        if before is None or before.state is not record.state:
            if before is not None:
                del self._in[before.state][uid]
            self._in[record.state][uid] = None
        self._move(uid, before and before.holds, record.holds)

    def drop(self, uid: str) -> None:
        """Forgets a record, if there is one."""
        before = self._by_uid.pop(uid, None)
        self._lingering.discard(uid)
        if before is not None:
            del self._in[before.state][uid]
            self._move(uid, before.holds, None)

    def _move(self, uid: str, was: str | None, now: str | None) -> None:
        if was == now:
            return
        if was:
            self._on[was].discard(uid)
            if not self._on[was]:
                del self._on[was]
        if now:
            self._on[now].add(uid)
