"""Counts the places in Slurm's queue. All partitions share these places, and their number is half of
MaxJobCount. The other half is for running jobs, for native jobs, and for ended jobs until MinJobAge.

A user may name any number of partitions, accounts and reservations. Therefore the places are also
counted by user. A user may have at most a quarter of the sum of the user's own places and the free
places. The last tenth of all places is for users without a place.
"""

from collections import Counter
from collections.abc import Hashable
from typing import Generic, TypeVar

from extender.turns.ranking import Ranking

User = int | None
"""A user id. None is the user of Slurm's token. The jobs of all Pods without a user belong to the
token's user. While no other user has a place, the token's user may have all places except the last
tenth."""
Key = tuple[int, int]
_Thing = TypeVar("_Thing", bound=Hashable)
_USER_SHARE, _TENTH = 4, 10


class Places(Generic[_Thing]):
    """Counts the places by user. Also ranks the things (in `window`: the owners of jobs) that wait until
    their user may have another place."""

    def __init__(self, max_job_count: int) -> None:
        self.taken = 0
        self.most = 0
        self._of: Counter[User] = Counter()
        self._waiting: dict[User, Ranking[_Thing, Key]] = {}
        self._users: Ranking[User, int] = Ranking()
        """The users that wait, by the number of their places."""
        self.limit(max_job_count)

    def limit(self, max_job_count: int) -> None:
        """Sets the number of places. `max_job_count` is Slurm's MaxJobCount."""
        self.most = max(1, max_job_count // 2)

    def take(self, user: User, more: int) -> None:
        """Gives a user `more` places. If `more` is negative, takes places back."""
        self.taken += more
        self._of[user] += more
        if not self._of[user]:
            del self._of[user]
        if user in self._waiting:
            self._users.put(user, self._of[user])

    @property
    def left(self) -> int:
        """Returns the number of free places."""
        return max(0, self.most - self.taken)

    @property
    def share(self) -> int:
        """Returns the number of places that an owner may have in a partition."""
        return max(1, self.left // _USER_SHARE)

    def open_to(self, user: User) -> bool:
        """Returns True if a user may have another place."""
        left, own = self.left, self._of[user]
        if not own:
            return left > 0
        if left <= self.most // _TENTH:
            return False
        alone = user is None and own == self.taken
        return alone or own < (left + own) // _USER_SHARE

    def waits(self, user: User, thing: _Thing) -> bool:
        """Returns True if a thing of this user waits for a place."""
        return user in self._waiting and thing in self._waiting[user]

    def wait(self, user: User, thing: _Thing, key: Key | None) -> None:
        """Lets a thing wait until its user may have another place. If `key` is None, the thing stops
        waiting."""
        waiting = self._waiting.setdefault(user, Ranking())
        waiting.put(thing, key)
        if waiting:
            self._users.put(user, self._of[user])
        else:
            del self._waiting[user]
            self._users.drop(user)

    def admitted(self) -> tuple[Key, _Thing] | None:
        """Returns the first waiting thing that may have a place now, with its key; None if there is no
        such thing. Checks only the waiting user with the fewest places: if this user may not have
        another place, no waiting user may have another place."""
        first = self._users.first()
        if first is None or not self.open_to(first[1]):
            return None
        return self._waiting[first[1]].top
