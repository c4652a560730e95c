"""Builds machines in files: sysfs as the kernel writes sysfs, and GPUs for a fake NVML."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from node_agent.machine.devices import Number
from wellknown import number_list

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from node_agent.machine.devices import Device

NVML = "libnvidia-ml.so.1"
_NUMBER = re.compile(r"\d+$")
_READ = """
import dataclasses, json, sys
from pathlib import Path
from node_agent.machine.vendors.nvidia import NVIDIA
found = NVIDIA.read(Path(sys.argv[1]), Path(sys.argv[2]))
print(json.dumps([dataclasses.asdict(one) for one in found], default=lambda vendor: vendor.name))
"""


def look(device: Device) -> tuple[frozenset[Number], str]:
    """Returns the numbers of a device's files, although the files do not exist. The minor number is the
    number in the file's name."""
    return frozenset(Number(60, int(_NUMBER.findall(file)[0])) for file in device.files), ""


def build_nvml(library: Path) -> None:
    """Compiles nvml.c. The library works with the C library of this machine, or with a newer version."""
    assert shutil.which("cc"), "a C compiler is needed: apt-get install gcc libc6-dev"
    # gnu11, because with C23 the library would need strtol of a newer C library.
    options = ("-std=gnu11", "-shared", "-fPIC", "-O1", "-static-libgcc")
    source = Path(__file__).with_name("nvml.c")
    subprocess.run(["cc", *options, "-o", library, source], check=True)


@dataclass
class Gpus:
    """GPUs of a fake NVML. Each read has a process of its own, because a process loads NVML only
    once."""

    folder: Path
    library: Path
    lines: list[str] = field(default_factory=list)

    @property
    def pci(self) -> Path:
        return self.folder / "pci"

    @property
    def mig_minors(self) -> Path:
        return self.folder / "mig-minors"

    def add(self, *, node: int = 0, cpus: str = "0-7", **fields: Any) -> None:
        number = sum(line.startswith("gpu") for line in self.lines)
        bus = f"{0x19 + number:02X}:00.0"
        told = {"bus": f"00000000:{bus}", "minor": number, "uuid": f"GPU-{number}"} | fields
        told.setdefault("name", "NVIDIA_H100_80GB_HBM3")
        self.say("gpu", **told)
        place = self.pci / f"0000:{bus.lower()}"
        _put(place, vendor="0x10de", numa_node=node, local_cpulist=cpus)
        (place / "class").write_text("0x030200\n")

    def say(self, kind: str, **fields: Any) -> None:
        self.lines.append(" ".join([kind, *(f"{key}={value}" for key, value in fields.items())]))

    @property
    def told(self) -> str:
        """Returns the text that the fake library reads."""
        return "".join(f"{line}\n" for line in self.lines)

    @property
    def environment(self) -> dict[str, str]:
        state = self.folder / "gpus"
        state.write_text(self.told, errors="surrogateescape")  # NVML may report invalid text
        return os.environ | {"LD_LIBRARY_PATH": str(self.library), "NVML_STATE": str(state)}

    def read(self) -> list[dict[str, Any]]:
        return list(self.told_by(_READ))

    def told_by(self, script: str) -> Any:
        """Returns the JSON output of a script."""
        done = self.run(script)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def run(self, script: str, timeout: float | None = None) -> subprocess.CompletedProcess[str]:
        """Runs a Python script. The script's arguments are the folder of PCI devices and the file with
        the minor numbers of MIG."""
        argv = [sys.executable, "-c", script, str(self.pci), str(self.mig_minors)]
        return subprocess.run(
            argv, env=self.environment, capture_output=True, text=True, check=False, timeout=timeout
        )


Cores = tuple[tuple[int, ...], ...]
"""CPUs of each core."""


@dataclass(frozen=True)
class Machine:
    """CPUs of a machine, nested from outside to inside: sockets, NUMA nodes, caches, cores."""

    sockets: tuple[tuple[tuple[Cores, ...], ...], ...]

    @property
    def cpus(self) -> list[int]:
        """Returns the CPUs in the order of `sockets`. If `sockets` is in hwloc's order, hwloc walks the
        CPUs in the same order."""
        return [cpu for _, _, _, core in self._walk() for cpu in core]

    def write(self, root: Path) -> Path:
        """Writes sysfs as the kernel does, and returns the path of sys/devices/system."""
        system = root / "sys/devices/system"
        (system / "node").mkdir(parents=True)
        online = number_list.compress(self.cpus)
        _put(system / "cpu", online=online, possible=online)
        nodes = [
            [cpu for cache in node for core in cache for cpu in core] for s in self.sockets for node in s
        ]
        _put(system / "node", online=number_list.compress(range(len(nodes))))
        for number, cpus in enumerate(nodes):
            _put(system / f"node/node{number}", cpulist=number_list.compress(cpus), cpumap=_mask(cpus))
        for position, (number, socket, cache, core) in enumerate(self._walk()):
            for cpu in core:
                self._write_cpu(system / f"cpu/cpu{cpu}", number, position, (socket, cache, core))
        return system

    def _write_cpu(
        self,
        folder: Path,
        socket: int,
        core: int,
        parts: tuple[Sequence[int], Sequence[int], Sequence[int]],
    ) -> None:
        lists = {
            f"{n}_cpus_list": number_list.compress(p) for n, p in zip(_PARTS, parts, strict=True) if n
        }
        masks = {f"{n}_cpus": _mask(p) for n, p in zip(_PARTS, parts, strict=True) if n}
        _put(folder / "topology", physical_package_id=socket, core_id=core, **lists, **masks)
        shared = {"shared_cpu_list": number_list.compress(parts[1]), "shared_cpu_map": _mask(parts[1])}
        _put(folder / "cache/index3", level=3, type="Unified", size="32768K", **_CACHE, **shared)

    def _walk(self) -> Iterator[tuple[int, list[int], list[int], tuple[int, ...]]]:
        """Yields for each core: number of the socket, CPUs of the socket, CPUs of the cache, and CPUs of
        the core."""
        for number, socket in enumerate(self.sockets):
            whole = [cpu for node in socket for cache in node for core in cache for cpu in core]
            for cache in (cache for node in socket for cache in node):
                for core in cache:
                    yield number, whole, [cpu for core in cache for cpu in core], core


_PARTS = ("package", "", "core")
_CACHE = {"coherency_line_size": 64, "number_of_sets": 32768, "physical_line_partition": 1}


def _put(folder: Path, **files: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_text(f"{content}\n")


def _mask(cpus: Iterable[int]) -> str:
    """Returns a mask of CPUs as the kernel writes a mask: groups of 32 bits, the highest first."""
    bits = sum(1 << cpu for cpu in cpus)
    groups = [f"{bits >> shift & 0xFFFFFFFF:08x}" for shift in range(0, max(bits.bit_length(), 1), 32)]
    return ",".join(reversed(groups))
