"""How the tests on a Node come to their cluster, where QEMU is not to be relied on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deploy.local.errors import GuestGoneError

if TYPE_CHECKING:
    from collections.abc import Callable

    from deploy.local.cluster import Cluster
    from deploy.local.progress import Report


def brought_up(up: Callable[[], Cluster], report: Report) -> Cluster:
    """Brings a cluster up, and once more where its guest was gone before the cluster served: without KVM
    a kernel dies now and then soon after its boot. Nothing else is tried again, and nothing later."""
    try:
        return up()
    except GuestGoneError as error:
        report(f"{error}\nthe guest was gone before the tests began: it is booted once more")
        return up()
