"""A collection of things in the order of their keys. Keys may change and things may leave at any time.

Outdated entries stay in the heap until they reach the top, so each change costs O(log n).
"""

import heapq
from collections.abc import Hashable, Iterator
from typing import Any, Generic, TypeVar

_Thing = TypeVar("_Thing", bound=Hashable)
_Key = TypeVar("_Key")
_FEW = 64


class Ranking(Generic[_Thing, _Key]):
    """Contains each thing once, with one key. If keys are equal, the thing that got its key first comes
    first."""

    def __init__(self) -> None:
        self._keys: dict[_Thing, _Key] = {}
        self._heap: list[tuple[Any, int, _Thing]] = []
        self._put = 0

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[_Thing]:
        return iter(self._keys)

    def __contains__(self, thing: object) -> bool:
        return thing in self._keys

    def put(self, thing: _Thing, key: _Key | None) -> None:
        """Adds a thing, or changes the key of a thing. If `key` is None, removes the thing."""
        if key is None:
            self.drop(thing)
            return
        if self._keys.get(thing) == key:
            return
        self._keys[thing] = key
        self._put += 1
        heapq.heappush(self._heap, (key, self._put, thing))
        self._trim()

    def drop(self, thing: _Thing) -> None:
        """Removes a thing, if present."""
        if self._keys.pop(thing, None) is not None:
            self._trim()

    def key(self, thing: _Thing) -> _Key | None:
        """Returns the key of a thing; None if the thing is not present."""
        return self._keys.get(thing)

    def number_before(self, key: Any) -> int:
        """Returns the number of things with smaller keys. The cost grows with the number of all
        things."""
        return sum(each < key for each in self._keys.values())

    def first(self) -> tuple[_Key, _Thing] | None:
        """Returns the smallest key, and its thing; None if the ranking is empty."""
        while self._heap and self._keys.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        if not self._heap:
            return None
        key, _, thing = self._heap[0]
        return key, thing

    @property
    def top(self) -> tuple[_Key, _Thing]:
        """Returns the smallest key, and its thing. The ranking must not be empty."""
        first = self.first()
        assert first is not None
        return first

    def _trim(self) -> None:
        if len(self._heap) <= 2 * len(self._keys) + _FEW:
            return
        self._heap = [(key, number, thing) for number, (thing, key) in enumerate(self._keys.items())]
        self._put = len(self._heap)
        heapq.heapify(self._heap)
