"""A guest that is gone before the tests began is booted once more, and no more than once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from deploy.local.errors import ClusterError, GuestGoneError
from tests.node.boot import brought_up

if TYPE_CHECKING:
    from deploy.local.cluster import Cluster

GONE = GuestGoneError("Kernel panic")
OTHER = ClusterError("etcd does not serve")
SERVES: Any = object()


class Ups:
    """What comes of each try."""

    def __init__(self, *become: ClusterError | Cluster) -> None:
        self._become = list(become)
        self.said: list[str] = []

    def __call__(self) -> Cluster:
        becomes = self._become.pop(0)
        if isinstance(becomes, ClusterError):
            raise becomes
        return becomes


def test_a_guest_that_is_gone_is_booted_once_more_and_the_output_says_so() -> None:
    ups = Ups(GONE, SERVES)
    assert brought_up(ups, ups.said.append) is SERVES
    (said,) = ups.said
    assert said.startswith("Kernel panic\n")
    assert said.endswith("it is booted once more")


@pytest.mark.parametrize("become", [(OTHER, SERVES), (GONE, GONE, SERVES), (GONE, OTHER, SERVES)])
def test_what_fails_otherwise_or_again_is_a_failure(become: tuple[ClusterError, ...]) -> None:
    ups = Ups(*become)
    with pytest.raises(ClusterError) as failed:
        brought_up(ups, ups.said.append)
    assert failed.value is become[-2]


def test_nothing_is_said_of_a_guest_that_serves() -> None:
    ups = Ups(SERVES)
    assert brought_up(ups, ups.said.append) is SERVES
    assert ups.said == []
