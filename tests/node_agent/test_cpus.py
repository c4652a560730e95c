"""Tests of the CPUs of each core in Slurm's numbering, compared with slurmd's own map for many
machines."""

from __future__ import annotations

import random
import re
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from deploy.local.spec import DEBIAN_SUITES
from node_agent.machine.cpus import Cpus
from tests.node_agent.machines import Machine
from tests.node_agent.slurmd import slurmd_prints

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAPPED = re.compile(r"CPU map\[(\d+)\]=>(\d+) ")
_SHAPE = "CPUs={cpus} Sockets={sockets} CoresPerSocket={cores} ThreadsPerCore={threads}"
MACHINES = {
    "one thread a core": Machine((((((0,), (1,), (2,), (3,)),),),)),
    "second threads last": Machine((((((0, 4), (1, 5)),),), ((((2, 6), (3, 7)),),))),
    "threads side by side": Machine((((((0, 1), (2, 3)),),), ((((4, 5), (6, 7)),),))),
    "sockets by turns": Machine(
        (((((0, 8), (2, 10)), ((4, 12), (6, 14))),), ((((1, 9), (3, 11)), ((5, 13), (7, 15))),))
    ),
    "the first socket has the last CPUs": Machine((((((2,), (3,)),),), ((((0,), (1,)),),))),
    "caches by turns": Machine((((((0, 4), (2, 6)), ((1, 5), (3, 7))),),)),
    "NUMA nodes in a socket, by turns": Machine(
        (((((0,), (4,)),), (((1,), (5,)),)), ((((2,), (6,)),), (((3,), (7,)),)))
    ),
}


def at_random(seed: int) -> Machine:
    """Returns a machine of random size, with the numbers of the CPUs in random order."""
    choose = random.Random(seed)
    sockets, nodes, caches, cores, threads = (choose.randint(1, most) for most in (3, 2, 2, 3, 2))
    numbers = list(range(sockets * nodes * caches * cores * threads))
    choose.shuffle(numbers)
    take = iter(numbers)

    def core() -> tuple[int, ...]:
        return tuple(sorted(next(take) for _ in range(threads)))

    return Machine(
        tuple(
            tuple(
                tuple(tuple(core() for _ in range(cores)) for _ in range(caches)) for _ in range(nodes)
            )
            for _ in range(sockets)
        )
    )


MACHINES |= {f"at random {seed}": at_random(seed) for seed in range(12)}


@pytest.mark.real
@pytest.mark.parametrize("release", DEBIAN_SUITES)
@pytest.mark.parametrize("name", MACHINES)
def test_map_of_cores_equals_slurmds_map(name: str, release: str, tmp_path: Path) -> None:
    system = MACHINES[name].write(tmp_path / "machine")
    assert list(chain(*Cpus.read(system).cores)) == list(slurmds_map(release, MACHINES[name], tmp_path))


def slurmds_map(release: str, machine: Machine, folder: Path) -> Iterator[int]:
    """Returns the machine's CPUs in Slurm's order, as slurmd logs the CPUs at the start."""
    cores = [core for socket in machine.sockets for node in socket for cache in node for core in cache]
    counts = {"cpus": len(machine.cpus), "sockets": len(machine.sockets), "threads": len(cores[0])}
    shape = _SHAPE.format(**counts, cores=len(cores) // len(machine.sockets))
    conf, elsewhere = f"NodeName=n1 {shape} RealMemory=1", {"HWLOC_FSROOT": "/run/machine"}
    printed = slurmd_prints(release, folder, conf, "-vvvvvvv", environment=elsewhere)
    mapped = {int(found[1]): int(found[2]) for found in _MAPPED.finditer(printed)}
    assert set(mapped) == set(machine.cpus), printed
    return (mapped[number] for number in sorted(mapped))


@pytest.mark.real
@pytest.mark.parametrize("release", DEBIAN_SUITES)
def test_slurmd_counts_each_cpu_as_a_core_if_only_cpus_is_set(release: str, tmp_path: Path) -> None:
    differs, elsewhere = "Node configuration differs from hardware", {"HWLOC_FSROOT": "/run/machine"}
    for number, (shape, found) in enumerate((("", False), (" Sockets=1 CoresPerSocket=8", True))):
        conf, folder = f"NodeName=n1 CPUs=8{shape} RealMemory=1", tmp_path / str(number)
        MACHINES["second threads last"].write(folder / "machine")
        assert (differs in slurmd_prints(release, folder, conf, environment=elsewhere)) is found


# Calculated by hand

CORES = Cpus(((0, 4), (1, 5), (2, 6), (3, 7)))


def slurmds_cpus(core: int, declared: int, threads: int, *, alone: bool) -> set[int]:
    """Returns the CPUs that slurmd gives to a native job on a core (xcpuinfo_abs_to_mac in Slurm).
    `declared` is the node's number of cores, and `threads` is the number of threads per core. With
    `alone`, slurmd takes each CPU for a core."""
    block_map, machines_threads = [*chain(*CORES.cores)], 1 if alone else 2
    assert core < declared
    return {block_map[(core * machines_threads + n) % len(block_map)] for n in range(threads)}


@pytest.mark.parametrize(
    ("sockets", "declared", "threads"),
    [("1x4", 4, 2), ("2x2", 4, 2), ("8x1", 8, 1), ("1x4", 4, 1), ("4x1", 4, 1), ("1x2", 2, 2)],
)
def test_pods_and_native_jobs_with_different_cores_share_no_cpu(
    sockets: str, declared: int, threads: int
) -> None:
    cores = CORES.counted_by([sockets]).cores
    for own in range(declared):
        for native in range(declared):
            cpus = slurmds_cpus(native, declared, threads, alone=sockets == "8x1")
            assert cpus <= {*cores[own]} if own == native else cpus.isdisjoint(cores[own])


@pytest.mark.parametrize(
    ("sockets", "words"),
    [
        (["1x8"], "Sockets=1 CoresPerSocket=8, and this machine has 4 cores and 8 CPUs in total"),
        (["80x1"], "Sockets=80 CoresPerSocket=1, and"),
        (["8x1", "1x4"], r"of the node, 1x4 \(sockets x cores\) and 8x1 \(sockets x cores\): delete"),
    ],
)
def test_cores_that_the_machine_does_not_have_are_an_error(sockets: list[str], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        CORES.counted_by(sockets)


def test_same_cores_in_other_sockets_are_no_error() -> None:
    assert CORES.counted_by(["1x4", "2x2"]) == CORES.counted_by([]) == CORES


@pytest.fixture
def cpus(tmp_path: Path) -> Cpus:
    return Cpus.read(MACHINES["sockets by turns"].write(tmp_path))


def test_cores_are_found_by_any_of_their_cpus(cpus: Cpus) -> None:
    assert cpus.cores_of([9, 2, 10]) == (1, 4)


def test_offline_second_threads_are_ignored(tmp_path: Path) -> None:
    system = MACHINES["second threads last"].write(tmp_path)
    (system / "cpu/online").write_text("0-3\n")
    for cpu in range(4):
        (system / f"cpu/cpu{cpu}/topology/core_cpus_list").write_text(f"{cpu}\n")
    assert Cpus.read(system).cores == ((0,), (1,), (2,), (3,))


def test_gaps_between_the_cpus_are_an_error(tmp_path: Path) -> None:
    system = MACHINES["threads side by side"].write(tmp_path)
    (system / "cpu/online").write_text("0,2,4,6\n")
    with pytest.raises(ValueError, match=r"CPUs 0,2,4,6 are online: .* gaps"):
        Cpus.read(system)


def test_a_machine_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="online"):
        Cpus.read(tmp_path)
