"""Pauses that grow from failure to failure."""

from typing import NamedTuple


class Pauses(NamedTuple):
    """The first and the longest pause of a row, in seconds. Each pause is twice the previous
    pause."""

    shortest: float
    longest: float

    def after(self, earlier: int) -> float:
        """Returns the pause after so many earlier pauses in a row."""
        return min(self.longest, self.shortest * 2.0 ** min(earlier, 40))
