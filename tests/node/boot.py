"""Brings up the cluster of the tests on a Node, although QEMU sometimes loses the guest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deploy.local.errors import GuestGoneError

if TYPE_CHECKING:
    from collections.abc import Callable

    from deploy.local.cluster import Cluster
    from deploy.local.progress import Report


def brought_up(up: Callable[[], Cluster], report: Report) -> Cluster:
    """Brings a cluster up, and tries a second time if the guest is gone before the cluster serves.
    Without KVM, a kernel sometimes dies soon after boot. No other error, and no later error, leads to a
    second try."""
    try:
        return up()
    except GuestGoneError as error:
        report(f"{error}\nthe guest was gone before the tests began: it is booted once more")
        return up()
