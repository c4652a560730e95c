"""The guard of the devices that Slurm counts. The guard is a program in the kernel, on the cgroup that
contains all Pods.

The kernel runs the program each time a process opens a device. The program allows access to all
unguarded devices. For a guarded device, the program allows access only with an entry for the Pod. So a
Pod without entries has no guarded device. The guard stays in force without the agent. The program allows
mknod, because the new file gives no access: the program decides when a process opens the file.

Two maps hold the guarded devices and the entries. The program only checks whether a key exists. The
value of an entry is for the next agent, and says whether other Pods may have parts of the device.

The kernel never uses the number of a cgroup again, so old entries are harmless. After an entry is
removed, open files stay open. The guard needs Linux 6.1, the first kernel in which a device program can
ask for the cgroups of a process (cgroup_current_func_proto).
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
"""Folder of maps and programs in the BPF file system."""
_NAME: Final = "slurm_guard"
_MOST_GUARDED, _MOST_LET_IN = 4096, 65536
_GUARDED, _LET_IN = struct.Struct("<II"), struct.Struct("<QII")
"""Keys of the two maps. The first key is a device. The second key is a Pod's cgroup and a device. If the
form of a key changes, the map needs a new name."""
_YES: Final = b"\1"
_IN_PART: Final = b"\2"
"""Value of an entry for a part of a device."""
_CHARACTER_DEVICE: Final = 2  # BPF_DEVCG_DEV_CHAR
_READ_OR_WRITE: Final = 6 << 16  # BPF_DEVCG_ACC_READ, BPF_DEVCG_ACC_WRITE
_ANCESTOR: Final = 123  # bpf_get_current_ancestor_cgroup_id

Device = tuple[int, int]
"""A character device: major and minor."""
Entry = tuple[int, Device, bool]
"""Three values: the kernel's number of a Pod's cgroup; a device that the Pod may open; True for access
to a part."""


class _Program(NamedTuple):
    """An attached program."""

    fd: int
    """File descriptor of the program, to detach the program later."""
    id: int
    """The kernel's number of the program."""
    place: Path
    """Path of the pinned program."""


class DeviceGuard:
    """The guard and its entries."""

    def __init__(self, folder: Path = FOLDER) -> None:
        """Takes over the entries of an earlier guard. Raises OSError."""
        self._folder = folder
        folder.mkdir(mode=0o700, exist_ok=True)
        self._guarded = bpf.Map.kept(folder / "guarded", _GUARDED.size, len(_YES), _MOST_GUARDED)
        self._let_in = bpf.Map.kept(folder / "let_in", _LET_IN.size, len(_YES), _MOST_LET_IN)
        self._programs: dict[int, _Program] = {}
        """Attached programs by the kernel's number of the cgroup."""

    def put_on(self, pods: Path, depth: int) -> tuple[int, ...]:
        """Attaches the guard to a cgroup that contains all Pods, and pins the maps and the program. Does
        so again if another program has removed the guard or the pins.

        Parameter `depth` is the number of levels below the root of all cgroups (1 for `/kubepods`).
        Returns the numbers of foreign device programs on the cgroup, because all programs must allow
        access. Raises OSError.
        """
        number, attached = number_of(pods), bpf.attached(pods)
        own = self._programs.get(number)
        if own is None or own.id not in attached or not self._is_kept(own, number):
            if own is not None:
                log.error("the guard has changed: the agent attaches the guard again", cgroup=str(pods))
            own = self._put_on(pods, number, depth)
            attached = bpf.attached(pods)
        return tuple(each for each in attached if each != own.id)

    @property
    def _maps(self) -> dict[str, bpf.Map]:
        return {"guarded": self._guarded, "let_in": self._let_in}

    def _kept(self, cgroup: int) -> list[Path]:
        return list(self._folder.glob(f"program-{cgroup}-*"))

    def _is_kept(self, own: _Program, cgroup: int) -> bool:
        """Returns True if the maps are pinned, and only this program is pinned for the cgroup. A program
        of an earlier agent may still be pinned."""
        maps = all((self._folder / name).exists() for name in self._maps)
        return maps and self._kept(cgroup) == [own.place]

    def _put_on(self, pods: Path, cgroup: int, depth: int) -> _Program:
        """Attaches a new program, and only then detaches an earlier program, so that a program is always
        attached. Pins the maps again if their pins are missing."""
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
        except OSError:  # the next call finds and removes this program by its path
            os.close(fd)
            raise
        self._programs[cgroup] = program
        if own is not None:
            os.close(own.fd)
        for each in before:  # programs of earlier agents, also after failed attempts
            _take_off(each, pods)
        return program

    def remove(self, pods: Iterable[Path]) -> None:
        """Detaches all programs, and removes all entries. Every Pod then has every device. Raises
        OSError."""
        for cgroup in pods:
            for place in self._kept(number_of(cgroup)):
                _take_off(place, cgroup)
        for place in self._folder.iterdir():
            place.unlink()
        self._folder.rmdir()

    def close(self, devices: Iterable[Device]) -> None:
        """Guards further devices. Raises OSError."""
        for device in devices:
            self._guarded.put(_GUARDED.pack(*device), _YES)

    def known(self) -> set[Entry]:
        """Returns all entries. Raises OSError."""
        return _let_in(self._let_in)

    def change(self, less: AbstractSet[Entry], more: AbstractSet[Entry]) -> None:
        """Removes entries first, and then adds entries. So a device may have no holder for a moment, but
        never two holders. Raises OSError."""
        for cgroup, device, _ in less:
            self._let_in.remove(_LET_IN.pack(cgroup, *device))
        for cgroup, device, in_part in more:
            self._let_in.put(_LET_IN.pack(cgroup, *device), _IN_PART if in_part else _YES)


def known_in(folder: Path) -> set[Entry]:
    """Returns the entries of the guard in a folder, without making a guard. Raises OSError."""
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
    """Returns the program for Pods one or two levels below `depth`. Burstable and BestEffort Pods are a
    level deeper, inside the cgroup of their QoS class."""
    major, minor = 7, 8  # calls of helpers do not change these registers
    code = Assembler()
    # struct bpf_cgroup_dev_ctx: the kind of device and the access are the halves of the first word.
    code.read(2, 1, 0)
    code.read(3, 1, 0)
    code.mask(2, 0xFFFF)
    code.jump_unless(2, _CHARACTER_DEVICE, "allow")
    code.mask(3, _READ_OR_WRITE)
    code.jump_if(3, 0, "allow")  # mknod opens no device
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
