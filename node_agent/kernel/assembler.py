"""Assembles the few BPF instructions that a device program needs (RFC 9669)."""

import struct
from typing import Final

_INSTRUCTION: Final = struct.Struct("<BBhi")
_FRAME: Final = 10
"""The register that points to the end of the frame. So offsets into the frame are below zero."""
_MAP: Final = 1  # BPF_PSEUDO_MAP_FD: the number is a map's file descriptor


class Assembler:
    """Collects instructions in their order. Most methods add an instruction. Registers have numbers.
    Register 0 gets the result of a call."""

    def __init__(self) -> None:
        self._code: list[bytes] = []
        self._jumps: dict[int, tuple[int, int, int, str]] = {}
        self._labels: dict[str, int] = {}

    def set(self, register: int, number: int) -> None:
        """Adds: register = number."""
        self._add(0xB7, register, number=number)

    def read(self, register: int, base: int, offset: int) -> None:
        """Adds: register = the 32 bits at base + offset."""
        self._add(0x61, register, base, offset)

    def mask(self, register: int, number: int) -> None:
        """Adds: register &= number, in 32 bits."""
        self._add(0x54, register, number=number)

    def store(self, register: int, offset: int, *, long: bool = False) -> None:
        """Adds: the 32 bits at frame + offset = register. With `long`, stores 64 bits."""
        self._add(0x7B if long else 0x63, _FRAME, register, offset)

    def look_up(self, map_fd: int, offset: int) -> None:
        """Adds: register 0 = address of a value in the map. The key is at frame + offset. If the map
        lacks the key, register 0 = 0."""
        self._add(0x18, 1, _MAP, number=map_fd)  # takes two instructions
        self._add(0)
        self._add(0xBF, 2, _FRAME)
        self._add(0x07, 2, number=offset)
        self.call(1)  # bpf_map_lookup_elem

    def call(self, helper: int) -> None:
        """Adds: register 0 = result of the kernel's helper with this number. The arguments are in the
        registers from 1 on. The call destroys registers 1 to 5."""
        self._add(0x85, number=helper)

    def jump_if(self, register: int, number: int, label: str) -> None:
        """Adds: jump to the label if register = number."""
        self._jump(0x15, register, number, label)

    def jump_unless(self, register: int, number: int, label: str) -> None:
        """Adds: jump to the label if register != number."""
        self._jump(0x55, register, number, label)

    def label(self, name: str) -> None:
        """Names this place, so that a jump can go here."""
        self._labels[name] = len(self._code)

    def leave(self, number: int) -> None:
        """Adds: return this number."""
        self.set(0, number)
        self._add(0x95)

    def assembled(self) -> list[bytes]:
        """Returns the instructions. Raises KeyError if the label of a jump is missing."""
        for place, (operation, register, number, label) in self._jumps.items():
            offset = self._labels[label] - place - 1
            self._code[place] = _INSTRUCTION.pack(operation, register, offset, number)
        return self._code

    def _jump(self, operation: int, register: int, number: int, label: str) -> None:
        self._jumps[len(self._code)] = operation, register, number, label
        self._add(operation)

    def _add(
        self, operation: int, register: int = 0, source: int = 0, offset: int = 0, number: int = 0
    ) -> None:
        self._code.append(_INSTRUCTION.pack(operation, register | source << 4, offset, number))
