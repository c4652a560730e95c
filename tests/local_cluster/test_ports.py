"""Tests of leases of ports. While a cluster has leased a port, no other cluster on the machine gets the
port."""

import socket
from contextlib import closing

import pytest

from deploy.local.errors import ClusterError
from deploy.local.processes import ports
from deploy.local.processes.ports import BLOCK_SIZE, lease_ports


@pytest.fixture(autouse=True)
def _range_of_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restricts the leases to three blocks of ports that no cluster uses."""
    monkeypatch.setattr(ports, "FIRST_PORT", 18_000)
    monkeypatch.setattr(ports, "LAST_PORT", 18_000 + 3 * BLOCK_SIZE - 1)


def test_two_leases_share_no_port() -> None:
    with closing(lease_ports(["a", "b"])) as first, closing(lease_ports(["a", "b"])) as second:
        assert set(first.ports) == set(second.ports) == {"a", "b"}
        assert not set(first.ports.values()) & set(second.ports.values())


def test_ports_of_a_closed_lease_can_be_leased_again() -> None:
    with closing(lease_ports(["a"])) as first:
        taken = first.ports
    with closing(lease_ports(["a"])) as second:
        assert second.ports == taken


def test_port_in_use_is_left_out() -> None:
    with closing(socket.socket()) as listener:
        listener.bind(("127.0.0.1", 18_000))
        listener.listen()
        with closing(lease_ports(["a"])) as lease:
            assert lease.ports == {"a": 18_001}


def test_many_ports_take_several_blocks() -> None:
    names = [f"slurmd-{number}" for number in range(BLOCK_SIZE + 1)]
    with closing(lease_ports(names)) as lease:
        assert len(set(lease.ports.values())) == len(names)
        assert len(lease.locks) == 2


def test_lease_of_too_many_ports_fails_and_holds_no_ports() -> None:
    with pytest.raises(ClusterError, match="no 301 free ports"):
        lease_ports([str(number) for number in range(3 * BLOCK_SIZE + 1)])
    with closing(lease_ports(["a"])) as lease:
        assert lease.ports == {"a": 18_000}
