"""Calls bpf(2) for device programs (type CGROUP_DEVICE): makes maps, and attaches programs to cgroups.

The module uses the system call itself, because no library on PyPI has these calls. Structures and
numbers follow include/uapi/linux/bpf.h. Pinned maps and programs, and attached programs, outlive this
process.
"""

import ctypes
import errno
import os
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import IntEnum
from pathlib import Path
from typing import Final, Self

_NUMBER: Final = {"x86_64": 321, "aarch64": 280}.get(os.uname().machine)
"""Number of the system call."""
_ATTRIBUTES: Final = 144
"""Bytes of union bpf_attr in Linux 5.15. Bytes that a kernel does not know must be zero."""
_LOG: Final = 1 << 16
_DEVICE_PROGRAM: Final = 15  # BPF_PROG_TYPE_CGROUP_DEVICE
_DEVICE_HOOK: Final = 6  # BPF_CGROUP_DEVICE
_COUNT_AT: Final = 24
"""Offset of the number of programs (prog_cnt) in the reply to PROG_QUERY."""
_MOST_ATTACHED: Final = 64  # BPF_CGROUP_MAX_PROGS
_ID_AT, _INFO = 4, 8
"""Offset of the id in struct bpf_prog_info, and number of bytes to read of the structure."""
_MULTI: Final = 2  # BPF_F_ALLOW_MULTI: foreign programs stay, and all programs must allow access
_HASH: Final = 1  # BPF_MAP_TYPE_HASH
_libc: Final = ctypes.CDLL(None, use_errno=True)


class _Command(IntEnum):
    MAP_CREATE = 0
    MAP_LOOKUP_ELEM = 1
    MAP_UPDATE_ELEM = 2
    MAP_DELETE_ELEM = 3
    MAP_GET_NEXT_KEY = 4
    PROG_LOAD = 5
    OBJ_PIN = 6
    OBJ_GET = 7
    PROG_ATTACH = 8
    PROG_DETACH = 9
    OBJ_GET_INFO_BY_FD = 15
    PROG_QUERY = 16


def _bpf(command: _Command, attributes: bytes) -> int:
    """Returns the kernel's reply. Raises OSError."""
    return _asked(command, ctypes.create_string_buffer(attributes, _ATTRIBUTES))


def _asked(command: _Command, buffer: "ctypes.Array[ctypes.c_char]") -> int:
    """Returns the kernel's reply. Some commands also reply in the buffer with the attributes. Raises
    OSError."""
    if _NUMBER is None:
        raise OSError(errno.ENOSYS, f"the number of bpf(2) on {os.uname().machine} is not known here")
    answer = int(_libc.syscall(_NUMBER, command, buffer, _ATTRIBUTES))
    if answer < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"bpf {command.name}: {os.strerror(number)}")
    return answer


class Map:
    """A hash map in the kernel. Keys and values have fixed sizes in bytes."""

    def __init__(self, fd: int, key_size: int, value_size: int) -> None:
        self.fd = fd
        self._key_size = key_size
        self._value_size = value_size

    @classmethod
    def kept(cls, place: Path, key_size: int, value_size: int, most: int) -> Self:
        """Opens the map that is pinned at this path in the BPF file system. If no map is pinned there,
        makes and pins a map with at most `most` entries. Raises OSError."""
        with suppress(FileNotFoundError):
            return cls(pinned(place), key_size, value_size)
        fields = struct.pack("<5I8x16s", _HASH, key_size, value_size, most, 0, place.name.encode())
        fd = _bpf(_Command.MAP_CREATE, fields)
        pin(fd, place)
        return cls(fd, key_size, value_size)

    def put(self, key: bytes, value: bytes) -> None:
        """Sets an entry. Raises OSError, with E2BIG if the map is full."""
        kept = ctypes.create_string_buffer(value, self._value_size)
        self._element(_Command.MAP_UPDATE_ELEM, key, kept)

    def remove(self, key: bytes) -> None:
        """Removes an entry, if present."""
        with suppress(FileNotFoundError):
            self._element(_Command.MAP_DELETE_ELEM, key)

    def entries(self) -> dict[bytes, bytes]:
        """Returns all values by key. If an entry is removed during the call, the value may be b"".
        Raises OSError."""
        found, last = dict[bytes, bytes](), None
        following = ctypes.create_string_buffer(self._key_size)
        with suppress(FileNotFoundError):  # the end
            while last is None or last not in found:  # the kernel starts over after a removed key
                found |= {} if last is None else {last: self._value(last)}
                self._element(_Command.MAP_GET_NEXT_KEY, last, following)
                last = following.raw
        return found

    def _value(self, key: bytes) -> bytes:
        value = ctypes.create_string_buffer(self._value_size)
        try:
            self._element(_Command.MAP_LOOKUP_ELEM, key, value)
        except FileNotFoundError:
            return b""
        return value.raw

    def _element(
        self, command: _Command, key: bytes | None, value: "ctypes.Array[ctypes.c_char] | None" = None
    ) -> None:
        kept = None if key is None else ctypes.create_string_buffer(key, self._key_size)
        at, to = (0 if each is None else ctypes.addressof(each) for each in (kept, value))
        _bpf(command, struct.pack("<I4xQQQ", self.fd, at, to, 0))


def load(name: str, instructions: Sequence[bytes]) -> int:
    """Loads a device program, and returns the file descriptor. Raises OSError with the last message of
    the kernel's verifier."""
    code = ctypes.create_string_buffer(b"".join(instructions))
    license_, log = ctypes.create_string_buffer(b"GPL"), ctypes.create_string_buffer(_LOG)
    fields = struct.pack(
        "<IIQQIIQII16s",
        *(_DEVICE_PROGRAM, len(instructions), ctypes.addressof(code), ctypes.addressof(license_)),
        *(1, _LOG, ctypes.addressof(log), 0, 0, name.encode()),
    )
    try:
        return _bpf(_Command.PROG_LOAD, fields)
    except OSError as error:
        lines = log.value.decode(errors="replace").strip().splitlines()
        words = " | ".join(line for line in lines[-4:] if not line.startswith("processed"))
        raise OSError(error.errno, f"{error.strerror}: {words}") from error


def pin(fd: int, place: Path) -> None:
    """Pins a map or a program at a path in the BPF file system. Raises OSError."""
    name = ctypes.create_string_buffer(os.fsencode(place))
    _bpf(_Command.OBJ_PIN, struct.pack("<QII", ctypes.addressof(name), fd, 0))


def pinned(place: Path) -> int:
    """Opens a pinned map or program, and returns the file descriptor. Raises OSError."""
    name = ctypes.create_string_buffer(os.fsencode(place))
    return _bpf(_Command.OBJ_GET, struct.pack("<QII", ctypes.addressof(name), 0, 0))


def attach(program: int, cgroup: Path) -> None:
    """Attaches a program to a cgroup. Foreign programs stay attached, and all programs must allow
    access. Raises OSError."""
    with _opened(cgroup) as fd:
        _bpf(_Command.PROG_ATTACH, struct.pack("<IIII", fd, program, _DEVICE_HOOK, _MULTI))


def detach(program: int, cgroup: Path) -> None:
    """Detaches a program from a cgroup, if attached. Raises OSError."""
    with _opened(cgroup) as fd, suppress(FileNotFoundError):
        _bpf(_Command.PROG_DETACH, struct.pack("<III", fd, program, _DEVICE_HOOK))


def attached(cgroup: Path) -> tuple[int, ...]:
    """Returns the numbers of all device programs on a cgroup. Programs on the cgroups above are left
    out. Raises OSError."""
    ids = (ctypes.c_uint32 * _MOST_ATTACHED)()
    with _opened(cgroup) as fd:
        fields = struct.pack("<IIIIQI", fd, _DEVICE_HOOK, 0, 0, ctypes.addressof(ids), _MOST_ATTACHED)
        buffer = ctypes.create_string_buffer(fields, _ATTRIBUTES)
        _asked(_Command.PROG_QUERY, buffer)
    return tuple(ids[: struct.unpack_from("<I", buffer.raw, _COUNT_AT)[0]])


def id_of(program: int) -> int:
    """Returns the kernel's number of a program. Raises OSError."""
    info = ctypes.create_string_buffer(_INFO)
    _bpf(_Command.OBJ_GET_INFO_BY_FD, struct.pack("<IIQ", program, _INFO, ctypes.addressof(info)))
    return int(struct.unpack_from("<I", info.raw, _ID_AT)[0])


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)
