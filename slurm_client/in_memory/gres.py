"""The generic resources (GRES) of a node, as pools of numbered devices. Jobs take devices and give
devices back.

For example, "gpu:h100:8,gpu:a100:2,shard:4" gives a node three pools. Pools with the same name share one
numbering: the ten GPUs here have the numbers 0 to 9, as in /dev/nvidia0 to /dev/nvidia9.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from slurm_client.gres import parse
from wellknown import number_list


@dataclass(frozen=True, slots=True)
class Devices:
    """A job's devices of one pool."""

    name: str
    type: str
    indices: tuple[int, ...]

    @property
    def text(self) -> str:
        """The devices as in a job's gres_detail, like "gpu:h100:2(IDX:0-1)"."""
        kind = f"{self.name}:{self.type}" if self.type else self.name
        return f"{kind}:{len(self.indices)}(IDX:{number_list.compress(self.indices)})"


class Pools:
    """A node's devices of each kind, and the free devices."""

    def __init__(self, configured: str) -> None:
        self._free: dict[tuple[str, str], set[int]] = {}
        counts: dict[str, int] = defaultdict(int)
        for name, kind, count in parse(configured):
            start = counts[name]
            counts[name] += count
            self._free[name, kind] = set(range(start, start + count))
        self._all = {pool: frozenset(free) for pool, free in self._free.items()}

    def total(self, wanted: str) -> int:
        """Returns the number of all devices, free or taken, of a name like "gpu" or "gpu:h100"."""
        return sum(len(self._all[pool]) for pool in self._matching(wanted))

    def find(self, wanted: Sequence[tuple[str, int]]) -> tuple[Devices, ...] | None:
        """Returns free devices for a request, with the lowest numbers first. Returns None if too few
        devices are free."""
        found = [self._find(name, count) for name, count in wanted]
        return None if None in found else tuple(one for devices in found for one in devices or ())

    def everything(self) -> tuple[Devices, ...] | None:
        """Returns all devices, for a job that gets the whole node. Returns None if a device is taken."""
        if any(self._free[pool] != self._all[pool] for pool in self._all):
            return None
        return tuple(Devices(*pool, tuple(sorted(held))) for pool, held in self._all.items())

    def take(self, devices: Iterable[Devices]) -> None:
        for one in devices:
            self._free[one.name, one.type].difference_update(one.indices)

    def give_back(self, devices: Iterable[Devices]) -> None:
        for one in devices:
            self._free[one.name, one.type].update(one.indices)

    @property
    def used(self) -> str:
        """The taken devices as in a node's gres_used, like "gpu:h100:3"."""
        return ",".join(
            ":".join(filter(None, [*pool, str(len(self._all[pool]) - len(free))]))
            for pool, free in self._free.items()
        )

    def _find(self, wanted: str, count: int) -> list[Devices] | None:
        found = []
        for pool in self._matching(wanted):
            indices = tuple(sorted(self._free[pool])[:count])
            count -= len(indices)
            if indices:
                found.append(Devices(*pool, indices))
        return found if count == 0 else None

    def _matching(self, wanted: str) -> list[tuple[str, str]]:
        name, _, kind = wanted.partition(":")
        return [pool for pool in self._all if pool[0] == name and kind in {"", pool[1]}]
