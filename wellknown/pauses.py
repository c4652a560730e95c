"""Pauses that grow from failure to failure."""

from typing import NamedTuple


class Pauses(NamedTuple):
    """The first pause of a row, and the longest, in seconds. Each pause is twice the one before."""

    shortest: float
    longest: float

    def after(self, earlier: int) -> float:
        """Returns the pause after so many earlier pauses in a row."""
        return min(self.longest, self.shortest * 2.0 ** min(earlier, 40))
