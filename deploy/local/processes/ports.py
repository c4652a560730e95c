"""Leases loopback ports, each to one cluster. A process that uses a block of ports holds the lock of
this block, an abstract UNIX socket. The kernel frees the lock when the process ends. Locks are separate
for each network namespace."""

import socket
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from deploy.local.errors import ClusterError

# Below the kernel's ephemeral range (32768) and Kubernetes' NodePorts (30000).
FIRST_PORT: Final = 20_000
LAST_PORT: Final = 29_999
BLOCK_SIZE: Final = 100


@dataclass(frozen=True, slots=True)
class PortLease:
    """Ports by name, leased while `locks` are open in this process or in a process that inherited
    them."""

    ports: dict[str, int]
    locks: tuple[socket.socket, ...]

    def filenos(self) -> list[int]:
        return [lock.fileno() for lock in self.locks]

    def close(self) -> None:
        for lock in self.locks:
            lock.close()


def lease_ports(names: Sequence[str]) -> PortLease:
    """Returns a free port for each name, from as many blocks as needed."""
    locks: list[socket.socket] = []
    ports: list[int] = []
    for first in range(FIRST_PORT, LAST_PORT, BLOCK_SIZE):
        if len(ports) >= len(names):
            break
        if (lock := _lock_block(first)) is not None:
            locks.append(lock)
            ports += _free_ports(first)
    if len(ports) < len(names):
        PortLease({}, tuple(locks)).close()
        raise ClusterError(f"no {len(names)} free ports between {FIRST_PORT} and {LAST_PORT}")
    return PortLease(dict(zip(names, ports, strict=False)), tuple(locks))


def _lock_block(first: int) -> socket.socket | None:
    lock = socket.socket(socket.AF_UNIX)
    try:
        lock.bind(f"\0slurm-extender/ports/{first}")
    except OSError:
        lock.close()
        return None
    return lock


def _free_ports(first: int) -> Iterator[int]:
    return (port for port in range(first, first + BLOCK_SIZE) if _is_free(port))


def _is_free(port: int) -> bool:
    with closing(socket.socket()) as probe:
        # Servers also set SO_REUSEADDR. With this option, closed connections of a stopped cluster do not
        # block a port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
