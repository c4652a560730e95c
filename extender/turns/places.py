"""The places in Slurm's queue that all partitions share, and which Slurm users may have more of them.

A user may ask for any number of lists of partitions, accounts and reservations. So places are counted
by user, too: a user may have at most a quarter of its own and those that are left together, and the last
tenth is kept for users that have none.
"""

from collections import Counter

from extender.turns.ranking import Ranking

User = int | None
"""A user id. None is the user of Slurm's token, whose jobs are those of all Pods without a user: as long
as no other user has a place it may have all but those that are kept."""

_QUARTER = 4
_TENTH = 10


class Places:
    """Half of Slurm's MaxJobCount. The other half is for what runs, for what has ended until MinJobAge,
    and for native jobs, which MaxJobCount counts too."""

    def __init__(self, max_job_count: int) -> None:
        self.taken = 0
        self.most = 0
        self._of: Counter[User] = Counter()
        self._waiting: dict[User, dict[str, None]] = {}
        """In which partitions each user waits for a place, in the order in which they are served."""
        self._next: Ranking[User, int] = Ranking()
        """The users that wait for a place, by how many they have."""
        self.limit(max_job_count)

    def limit(self, max_job_count: int) -> None:
        """Slurm's MaxJobCount is this."""
        self.most = max(1, max_job_count // 2)

    def take(self, user: User, more: int) -> None:
        """A user has so many more places, or (below 0) fewer."""
        self.taken += more
        self._of[user] += more
        if not self._of[user]:
            del self._of[user]
        if user in self._waiting:
            self._next.put(user, self._of[user])

    @property
    def left(self) -> int:
        """How many are free."""
        return max(0, self.most - self.taken)

    @property
    def share(self) -> int:
        """How many an owner may have in a partition: of what is left a quarter, and one at least."""
        return max(1, self.left // _QUARTER)

    def open_to(self, user: User) -> bool:
        """Tells whether a user may have one more place."""
        left, own = self.left, self._of[user]
        if not own:
            return left > 0
        if left <= self.most // _TENTH:
            return False
        alone = user is None and own == self.taken
        return alone or own < (left + own) // _QUARTER

    # Who waits for a place

    def wait(self, user: User, partition: str) -> None:
        """A user's Pods in a partition wait until the user may have one more place."""
        self._waiting.setdefault(user, {})[partition] = None
        self._next.put(user, self._of[user])

    def waits(self, user: User, partition: str) -> bool:
        """Tells whether a user's Pods in a partition wait for a place."""
        return partition in self._waiting.get(user, ())

    @property
    def anybody_waits(self) -> bool:
        """Tells whether anybody's Pods wait for a place."""
        return bool(self._waiting)

    def leave(self, user: User, partition: str) -> None:
        """They wait no longer."""
        partitions = self._waiting.get(user, {})
        partitions.pop(partition, None)
        if not partitions:
            self._waiting.pop(user, None)
            self._next.drop(user)

    def admitted(self) -> tuple[User, str] | None:
        """Returns a user that may have one more place, and in which partition it has waited longest for
        one: it waits no longer there. If the user with the fewest may not have more, no other may."""
        first = self._next.first()
        if first is None or not self.open_to(first[1]):
            return None
        user = first[1]
        partition = next(iter(self._waiting[user]))
        self.leave(user, partition)
        return user, partition
