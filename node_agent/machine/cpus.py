"""The CPUs of this machine, and which of them Slurm means by the number of a core.

Slurm numbers the cores of a node 0, 1, 2, ..., socket by socket, in the order in which hwloc walks the
machine; the kernel numbers CPUs as the firmware likes. slurmd translates between the two by hwloc, each
time that it starts (xcpuinfo.c), and tells nobody. The same is done here, from the same files of sysfs,
in hwloc's order: of two parts at the same place of the machine the one with the lowest CPU comes first.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from wellknown import number_list

SYSTEM = Path("/sys/devices/system")
_LEVELS = ("package", "die", "cluster", "core")
"""The files topology/*_cpus_list, as far as the kernel has them."""


@dataclass(frozen=True, slots=True)
class Cpus:
    """The cores of the machine, in Slurm's order."""

    cores: tuple[tuple[int, ...], ...]
    """Of each core its CPUs, its threads, by the machine's numbers."""

    @classmethod
    def read(cls, system: Path = SYSTEM) -> Self:
        """Reads the machine. Raises OSError or ValueError where sysfs is not as it should be, and where
        there are gaps between the numbers of the CPUs: slurmd's map is wrong then (xcpuinfo.c)."""
        text = _text(system / "cpu" / "online")
        online = number_list.expand(text)
        if online != tuple(range(len(online))):
            raise ValueError(
                f"CPUs {text} are online: Slurm counts no machine with gaps between its CPUs"
            )
        nodes = _numa_nodes(system)
        places = {cpu: _place(system / "cpu" / f"cpu{cpu}", cpu, nodes) for cpu in online}
        cores = dict[tuple[int, ...], list[int]]()
        for cpu in sorted(online, key=lambda cpu: (places[cpu], cpu)):
            cores.setdefault(places[cpu], []).append(cpu)
        return cls(tuple(map(tuple, cores.values())))

    def cores_of(self, cpus: Iterable[int]) -> tuple[int, ...]:
        """Returns Slurm's numbers of the cores of which any of these CPUs is a part (Cores= in
        gres.conf(5))."""
        wanted = set(cpus)
        return tuple(n for n, core in enumerate(self.cores) if not wanted.isdisjoint(core))


def _place(cpu: Path, number: int, nodes: Iterable[frozenset[int]]) -> tuple[int, ...]:
    """Returns where a CPU is: the lowest CPU of each part of the machine that it belongs to, the largest
    part first. Two CPUs of the same place are threads of one core."""
    parts = {*_parts(cpu), *(node for node in nodes if number in node)}
    core = min(parts, key=len)
    around = sorted((part for part in parts if part >= core), key=len, reverse=True)
    return tuple(min(part) for part in around)


def _parts(cpu: Path) -> Iterator[frozenset[int]]:
    for level in _LEVELS:
        file = cpu / "topology" / f"{level}_cpus_list"
        if file.exists():
            yield frozenset(number_list.expand(_text(file)))
    for cache in sorted(cpu.glob("cache/index*")):
        yield frozenset(number_list.expand(_text(cache / "shared_cpu_list")))


def _numa_nodes(system: Path) -> list[frozenset[int]]:
    files = system.glob("node/node*/cpulist")
    found = (frozenset(number_list.expand(_text(file))) for file in files)
    return [node for node in found if node]


def _text(file: Path) -> str:
    return file.read_text().strip()
