"""Tests that a Pod on a real Node opens only the devices of the Pod's job. The container may be
privileged, and a program of the Node may be dead or restart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from deploy.local.spec import GUEST_GPUS
from tests.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.node.real_node import Opened, RealNode

pytestmark = [pytest.mark.node, pytest.mark.timeout(600)]

NONE = frozenset[int]()


def assert_refused(opened: Opened, own: frozenset[int]) -> None:
    """Asserts that exactly the own devices open, and that every other device is refused, not absent."""
    assert opened.numbers == own, opened.said
    assert opened.refused == GUEST_GPUS - len(own), opened.said


def test_a_privileged_pod_opens_the_devices_of_its_job_and_no_others(node: RealNode) -> None:
    for name, gpus in (("two", 2), ("three", 3)):
        node.create(name, gpus=gpus)
    seen = set[int]()
    for name, gpus in (("two", 2), ("three", 3)):
        node.running(name)
        own = node.granted(name)
        assert len(own) == gpus
        assert seen.isdisjoint(own)
        seen |= own
        node.has(name, own)
        assert_refused(node.opens(name), own)
        assert_refused(node.opens(name, "/node-dev/fgpu"), own)


def test_device_file_that_a_pod_creates_opens_no_other_device(node: RealNode) -> None:
    node.run("one", gpus=1)
    own = node.granted("one")
    node.has("one", own)
    made = "for n in 0 1 2 3 4 5 6 7; do mknod /tmp/own$n c 4 $((16 + n)) || echo failed; done"
    assert node.inside("one", made) == ""
    assert_refused(node.opens("one", "/tmp/own"), own)


def test_pod_of_no_job_opens_no_device(node: RealNode) -> None:
    node.create_here("stray")
    node.running("stray")
    assert_refused(node.opens("stray"), NONE)
    assert_refused(node.opens("stray", "/node-dev/fgpu"), NONE)


def test_access_stays_the_same_while_the_agent_is_dead(node: RealNode) -> None:
    node.run("before", gpus=2)
    own = node.granted("before")
    node.has("before", own)
    node.cluster.kill("node-agent")
    assert_refused(node.opens("before"), own)
    node.create_here("after")
    node.running("after")
    other = min({*range(GUEST_GPUS)} - own)
    node.grant("after", [other])
    assert_refused(node.opens("after"), NONE)
    node.cluster.start("node-agent")
    node.has("after", frozenset({other}))
    assert_refused(node.opens("after"), frozenset({other}))
    assert_refused(node.opens("before"), own)


@pytest.mark.parametrize(
    ("program", "end"), [("kubelet", "stop"), ("containerd", "kill"), ("node-agent", "stop")]
)
def test_access_outlives_a_restart_of_a_node_program(node: RealNode, program: str, end: str) -> None:
    node.create("own", gpus=2)
    node.create_here("stray")
    for name in ("own", "stray"):
        node.running(name)
    own = node.granted("own")
    node.has("own", own)
    ends: dict[str, Callable[[str], object]] = {"stop": node.cluster.stop, "kill": node.cluster.kill}
    ends[end](program)
    node.cluster.start(program)
    node.counts()
    assert_refused(node.opens("own"), own)
    assert_refused(node.opens("stray"), NONE)
    node.run("next", gpus=1)
    node.has("next", node.granted("next"))
    assert node.granted("next").isdisjoint(own)


def test_next_pod_gets_device_after_last_process_of_deleted_pod(node: RealNode) -> None:
    """kubectl deletes the first Pod by force while the kubelet hangs, so the Pod's process continues."""
    first = node.run("first", gpus=2)["status"]["containerStatuses"][0]["containerID"].split("//")[1]
    own = node.granted("first")
    node.has("first", own)
    uid = node.uid("first")
    node.create_here("next")
    node.running("next")
    node.grant("next", sorted(own))
    eventually(lambda: node.pods_with_less() == 1, "the agent tells of the Pod that waits", 120)
    assert_refused(node.opens("next"), NONE)
    node.guest.run("pkill -STOP -x kubelet")
    node.actors.kubectl("delete", "pod", node.actors.full("first"), "--force", "--grace-period=0")
    node.actors.gone("first")
    words = "processes of a Pod that is gone"
    eventually(lambda: node.agent_says(words), "the agent knows that it is", 120)
    assert node.processes_of(uid), "the first Pod's process was to live on"
    assert_refused(node.opens_without_kubelet(first), own)
    second = node.running("next")["status"]["containerStatuses"][0]["containerID"].split("//")[1]
    assert_refused(node.opens_without_kubelet(second), NONE)
    node.guest.run("pkill -CONT -x kubelet")
    eventually(lambda: not node.processes_of(uid), "the first Pod's processes gone", 120)
    node.has("next", own)
