"""Tests that a cluster for tests on a Node is started again once, if the guest is lost."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest

from deploy.local.errors import ClusterError, GuestGoneError
from tests.node.boot import brought_up

GONE = GuestGoneError("Kernel panic")
OTHER = ClusterError("etcd does not serve")
SERVES: Any = object()


def test_lost_guest_is_booted_once_more_with_a_message() -> None:
    up, said = Mock(side_effect=[GONE, SERVES, SERVES]), list[str]()
    assert brought_up(up, said.append) is SERVES
    (words,) = said
    assert words.startswith("Kernel panic\n")
    assert words.endswith("it is booted once more")
    assert brought_up(up, said.append) is SERVES
    assert len(said) == 1


@pytest.mark.parametrize("become", [(OTHER, SERVES), (GONE, GONE, SERVES), (GONE, OTHER, SERVES)])
def test_other_or_second_error_is_raised(become: tuple[ClusterError, ...]) -> None:
    with pytest.raises(ClusterError) as failed:
        brought_up(Mock(side_effect=become), print)
    assert failed.value is become[-2]
