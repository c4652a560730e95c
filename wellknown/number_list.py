"""Reads and writes lists of small numbers in the kernel's list format (cpuset(7)), for example "0-3,8".
Slurm uses the format for cores and devices."""

import itertools
import re
from collections.abc import Iterable

from wellknown.quoting import quoted

MOST = 8192
"""Limit of the numbers in a list: the kernel's own limit of CPUs (NR_CPUS on x86)."""
_RANGE = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?", re.ASCII)
_LONGEST = 6 * MOST


def compress(numbers: Iterable[int]) -> str:
    """Returns the shortest list of these numbers, in order; "" without numbers."""
    # Consecutive numbers share number - position.
    runs = itertools.groupby(enumerate(sorted(set(numbers))), key=lambda pair: pair[1] - pair[0])
    spans = ([number for _, number in run] for _, run in runs)
    return ",".join(f"{span[0]}-{span[-1]}" if len(span) > 1 else f"{span[0]}" for span in spans)


def expand(text: str) -> tuple[int, ...]:
    """Returns the numbers of a list, in order, each once; () for "". Raises ValueError for a malformed
    list, and for more than MOST numbers."""
    if not text:
        return ()
    if len(text) > _LONGEST:
        raise ValueError(f"a list of more than {_LONGEST} characters")
    numbers = set[int]()
    for one in text.split(","):
        found = _RANGE.fullmatch(one)
        if found is None:
            raise ValueError(f"{quoted(one)} is no number and no range of numbers")
        first, last = int(found[1]), int(found[2] or found[1])
        if last < first:
            raise ValueError(f"{one} ends before it begins")
        if last - first >= MOST:
            raise ValueError(f"{one} is more than {MOST} numbers")
        numbers.update(range(first, last + 1))
        if len(numbers) > MOST:
            raise ValueError(f"more than {MOST} numbers")
    return tuple(sorted(numbers))
