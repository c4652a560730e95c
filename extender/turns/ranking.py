"""Things in the order of their keys, where keys change and things leave at any time.

A heap in which what is out of date stays until it comes up: each change costs O(log n).
"""

import heapq
from collections.abc import Hashable
from typing import Any, Generic, TypeVar

_Thing = TypeVar("_Thing", bound=Hashable)
_Key = TypeVar("_Key")
_FEW = 64


class Ranking(Generic[_Thing, _Key]):
    """Each thing is in it once. Equal keys: the one that got its key first comes first."""

    def __init__(self) -> None:
        self._keys: dict[_Thing, _Key] = {}
        self._heap: list[tuple[Any, int, _Thing]] = []
        self._put = 0

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, thing: object) -> bool:
        return thing in self._keys

    def put(self, thing: _Thing, key: _Key | None) -> None:
        """Takes a thing in, or gives it another key. Without a key it is taken out."""
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
        """Takes a thing out, if it is in it."""
        if self._keys.pop(thing, None) is not None:
            self._trim()

    def first(self) -> tuple[_Key, _Thing] | None:
        """Returns the smallest key, and its thing; None where there is nothing."""
        while self._heap and self._keys.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        if not self._heap:
            return None
        key, _, thing = self._heap[0]
        return key, thing

    @property
    def top(self) -> tuple[_Key, _Thing]:
        """Returns what `first` does, where there is something."""
        first = self.first()
        assert first is not None
        return first

    def _trim(self) -> None:
        if len(self._heap) <= 2 * len(self._keys) + _FEW:
            return
        self._heap = [(key, number, thing) for number, (thing, key) in enumerate(self._keys.items())]
        self._put = len(self._heap)
        heapq.heapify(self._heap)
