"""The guard of the devices that Slurm counts: in the kernel, on the cgroup that all Pods are in.

A device program decides each time that a process opens a device. This one lets everybody have what is
not guarded, and a guarded device only the Pods that were let in to it. It needs no agent for that:
with all that it knows it stays in force while the agent is away, hung or killed. A Pod that the agent
has never heard of has no guarded device. To make a file for a device is nobody's harm: whoever opens
it is asked.

What it knows is in two maps; the program looks for a key alone, and a value tells the next agent whether
others may be let in beside a Pod. The number of a cgroup is never used again while the machine runs: an
entry of a Pod that is gone harms nobody. A file that is open already stays open. It takes Linux 6.1,
the first that tells a device program the cgroups of the process (cgroup_current_func_proto).
"""

import os
import struct
import time
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Final, NamedTuple

import structlog

from node_agent.kernel import bpf
from node_agent.kernel.assembler import Assembler

log = structlog.get_logger()

FOLDER: Final = Path("/sys/fs/bpf/slurm-extender")
"""Of the BPF file system: where maps and programs are found again."""
_NAME: Final = "slurm_guard"
_MOST_GUARDED, _MOST_LET_IN = 4096, 65536
_GUARDED, _LET_IN = struct.Struct("<II"), struct.Struct("<QII")
"""The maps' keys: a device; a Pod's cgroup and a device. Who changes one changes its map's name, too."""
_YES: Final = b"\1"
_IN_PART: Final = b"\2"
"""The values: of whom has a part of a device, this."""
_CHARACTER_DEVICE: Final = 2  # BPF_DEVCG_DEV_CHAR
_READ_OR_WRITE: Final = 6 << 16  # BPF_DEVCG_ACC_READ, BPF_DEVCG_ACC_WRITE
_ANCESTOR: Final = 123  # bpf_get_current_ancestor_cgroup_id

Device = tuple[int, int]
"""A character device: major and minor."""
Entry = tuple[int, Device, bool]
"""A Pod's cgroup, by the kernel's number of it, a device that it was let in to, and whether it has but a
part of it."""


class _Program(NamedTuple):
    """One that is in force."""

    fd: int
    """It is open: so it can be taken off."""
    id: int
    """The kernel's number of it."""
    place: Path
    """Where it is kept."""


class DeviceGuard:
    """The guard, with what it knows."""

    def __init__(self, folder: Path = FOLDER) -> None:
        """Knows what the one before it knew. Raises OSError."""
        self._folder = folder
        folder.mkdir(mode=0o700, exist_ok=True)
        self._guarded = bpf.Map.kept(folder / "guarded", _GUARDED.size, len(_YES), _MOST_GUARDED)
        self._let_in = bpf.Map.kept(folder / "let_in", _LET_IN.size, len(_YES), _MOST_LET_IN)
        self._programs: dict[int, _Program] = {}
        """What was put on, by the kernel's number of the cgroup."""

    def put_on(self, pods: Path, depth: int) -> tuple[int, ...]:
        """Sees to it that a program is in force on a cgroup that Pods are in, `depth` levels below the
        root of all cgroups (`/kubepods` is 1), and that all is kept, also where somebody took it away.
        Returns the other device programs of that cgroup, by the kernel's numbers: all of them must allow
        what is opened. Raises OSError."""
        number, attached = number_of(pods), bpf.attached(pods)
        own = self._programs.get(number)
        if own is None or own.id not in attached or not self._is_kept(own, number):
            if own is not None:
                log.error("the guard is not as it was put on: it is put on again", cgroup=str(pods))
            own = self._put_on(pods, number, depth)
            attached = bpf.attached(pods)
        return tuple(each for each in attached if each != own.id)

    @property
    def _maps(self) -> dict[str, bpf.Map]:
        return {"guarded": self._guarded, "let_in": self._let_in}

    def _kept(self, cgroup: int) -> list[Path]:
        return list(self._folder.glob(f"program-{cgroup}-*"))

    def _is_kept(self, own: _Program, cgroup: int) -> bool:
        """Tells whether the maps are kept, and of the programs this one alone: another is one that could
        not be relieved."""
        maps = all((self._folder / name).exists() for name in self._maps)
        return maps and self._kept(cgroup) == [own.place]

    def _put_on(self, pods: Path, cgroup: int, depth: int) -> _Program:
        """A program that is there is relieved by the new one: there is one at any time. What somebody
        has removed of what is kept is kept again."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        for name, kept in self._maps.items():
            if not (self._folder / name).exists():
                bpf.pin(kept.fd, self._folder / name)
        before, own = self._kept(cgroup), self._programs.get(cgroup)
        fd = bpf.load(_NAME, _program(depth, self._guarded.fd, self._let_in.fd))
        place = self._folder / f"program-{cgroup}-{time.time_ns()}"
        try:
            program = _Program(fd, bpf.id_of(fd), place)
            bpf.pin(fd, place)
            bpf.attach(fd, pods)
            if own is not None:
                bpf.detach(own.fd, pods)
        except OSError:  # the next time this one is found by its place, and taken off
            os.close(fd)
            raise
        self._programs[cgroup] = program
        if own is not None:
            os.close(own.fd)
        for each in before:  # of the agent before, and of those that did not come as far as this
            _take_off(each, pods)
        return program

    def remove(self, pods: Iterable[Path]) -> None:
        """Takes all programs off, and forgets everything: from then on everybody has every device.
        Raises OSError."""
        for cgroup in pods:
            for place in self._kept(number_of(cgroup)):
                _take_off(place, cgroup)
        for place in self._folder.iterdir():
            place.unlink()
        self._folder.rmdir()

    def close(self, devices: Iterable[Device]) -> None:
        """From now on these devices, too, are had by nobody who was not let in. Raises OSError."""
        for device in devices:
            self._guarded.put(_GUARDED.pack(*device), _YES)

    def known(self) -> set[Entry]:
        """Returns who was let in to what. Raises OSError."""
        return _let_in(self._let_in)

    def change(self, less: AbstractSet[Entry], more: AbstractSet[Entry]) -> None:
        """First shuts out, then lets in: better nobody has a device for a moment than two. Raises
        OSError."""
        for cgroup, device, _ in less:
            self._let_in.remove(_LET_IN.pack(cgroup, *device))
        for cgroup, device, in_part in more:
            self._let_in.put(_LET_IN.pack(cgroup, *device), _IN_PART if in_part else _YES)


def known_in(folder: Path) -> set[Entry]:
    """Returns who was let in to what by the guard that is kept in a folder; nobody where there is none,
    and none is made. Raises OSError."""
    try:
        kept = bpf.pinned(folder / "let_in")
    except FileNotFoundError:
        return set()
    try:
        return _let_in(bpf.Map(kept, _LET_IN.size, len(_YES)))
    finally:
        os.close(kept)


def _let_in(kept: bpf.Map) -> set[Entry]:
    entries = ((*_LET_IN.unpack(key), value == _IN_PART) for key, value in kept.entries().items())
    return {(cgroup, (major, minor), in_part) for cgroup, major, minor, in_part in entries}


def number_of(cgroup: Path) -> int:
    """Returns the kernel's number of a cgroup. Raises OSError."""
    return cgroup.stat().st_ino


def _take_off(place: Path, pods: Path) -> None:
    program = bpf.pinned(place)
    try:
        bpf.detach(program, pods)
    finally:
        os.close(program)
    place.unlink()


def _program(depth: int, guarded: int, let_in: int) -> list[bytes]:
    """Pods are one level below `depth`, or two: those that are not Guaranteed have a cgroup of their QoS
    class between."""
    major, minor = 7, 8  # registers that calls leave alone
    code = Assembler()
    # struct bpf_cgroup_dev_ctx: the kind of device and the access are the halves of the first word.
    code.read(2, 1, 0)
    code.read(3, 1, 0)
    code.mask(2, 0xFFFF)
    code.jump_unless(2, _CHARACTER_DEVICE, "allow")
    code.mask(3, _READ_OR_WRITE)
    code.jump_if(3, 0, "allow")  # a file is made: that opens nothing
    code.read(major, 1, 4)
    code.read(minor, 1, 8)
    code.store(major, -8)
    code.store(minor, -4)
    code.look_up(guarded, -8)
    code.jump_if(0, 0, "allow")
    for level in (depth + 1, depth + 2):
        code.set(1, level)
        code.call(_ANCESTOR)
        code.store(0, -24, long=True)
        code.store(major, -16)
        code.store(minor, -12)
        code.look_up(let_in, -24)
        code.jump_unless(0, 0, "allow")
    code.leave(0)
    code.label("allow")
    code.leave(1)
    return code.assembled()
