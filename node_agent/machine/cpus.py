"""Maps Slurm's numbers of cores to the CPUs of this machine.

Slurm numbers the cores of a node 0, 1, 2, ..., socket by socket, in the order of hwloc. The kernel
numbers CPUs in the order of the firmware. slurmd maps the numbers with hwloc at each start (xcpuinfo.c),
but does not publish the map.

This module makes the same map from the same files of sysfs, in hwloc's order. If several parts, for
example cores, are inside the same larger part, the part with the lowest CPU comes first.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from wellknown import number_list

SYSTEM = Path("/sys/devices/system")
_LEVELS = ("package", "die", "cluster", "core")
"""The files topology/*_cpus_list of a CPU. A kernel may lack some of the files."""


@dataclass(frozen=True, slots=True)
class Cpus:
    """The cores of the machine, in Slurm's order."""

    cores: tuple[tuple[int, ...], ...]
    """CPUs (threads) of each core, in the machine's numbers."""

    @classmethod
    def read(cls, system: Path = SYSTEM) -> Self:
        """Reads the cores from sysfs. Raises OSError or ValueError if sysfs is not as expected. Also
        raises ValueError if the numbers of CPUs have gaps, because slurmd's own map is wrong then
        (xcpuinfo.c)."""
        text = _text(system / "cpu" / "online")
        online = number_list.expand(text)
        if online != tuple(range(len(online))):
            raise ValueError(
                f"CPUs {text} are online: slurmd maps cores wrongly on a machine with gaps in the"
                " numbers of CPUs"
            )
        nodes = _numa_nodes(system)
        places = {cpu: _place(system / "cpu" / f"cpu{cpu}", cpu, nodes) for cpu in online}
        cores = dict[tuple[int, ...], list[int]]()
        for cpu in sorted(online, key=lambda cpu: (places[cpu], cpu)):
            cores.setdefault(places[cpu], []).append(cpu)
        return cls(tuple(map(tuple, cores.values())))

    def counted_by(self, sockets: Collection[str]) -> Self:
        """Returns the cores as Slurm counts them if slurm.conf declares these sockets for the node. Each
        text has the form of `Allocation.sockets`: sockets x cores per socket, for example "2x4". Without
        sockets, returns the cores unchanged. Raises ValueError if slurmd maps several cores of the node
        to the same CPUs. Also raises ValueError if the declarations give different maps."""
        maps = {self._counted_by(*map(int, each.split("x"))) for each in sockets} or {self}
        if len(maps) > 1:
            ways = " and ".join(f"{each} (sockets x cores)" for each in sorted(sockets))
            raise ValueError(
                "the Pods got their cores under different declarations of the node,"
                f" {ways}: delete the Pods from before the change of slurm.conf"
            )
        return maps.pop()

    def _counted_by(self, sockets: int, cores: int) -> Self:
        """Returns slurmd's map (xcpuinfo_abs_to_mac). If slurm.conf declares as many sockets as the
        machine has CPUs, with a single core each, slurmd counts each CPU as a core (slurmd.c,
        _read_config). Otherwise, if slurm.conf declares fewer cores, Slurm uses the first cores of the
        machine."""
        every = [cpu for core in self.cores for cpu in core]
        if (sockets, cores) == (len(every), 1):
            return type(self)(tuple((cpu,) for cpu in every))
        if sockets * cores > len(self.cores):
            raise ValueError(
                f"slurm.conf declares Sockets={sockets} CoresPerSocket={cores}, and this machine has"
                f" {len(self.cores)} cores and {len(every)} CPUs in total: declare the line of"
                f" `slurmd -C`, or CPUs={len(every)} without sockets, cores and threads"
            )
        return self

    def cores_of(self, cpus: Iterable[int]) -> tuple[int, ...]:
        """Returns Slurm's numbers of the cores that have any of these CPUs (Cores= in gres.conf(5))."""
        wanted = set(cpus)
        return tuple(n for n, core in enumerate(self.cores) if not wanted.isdisjoint(core))


def _place(cpu: Path, number: int, nodes: Iterable[frozenset[int]]) -> tuple[int, ...]:
    """Returns the place of a CPU in the machine. For each part of the machine that contains the CPU, the
    place has the lowest CPU of the part. The largest part comes first. Two CPUs of the same place are
    threads of the same core."""
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
