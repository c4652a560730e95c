"""A member that is missing from a list of all Pods counts as deleted at last, although the other members
get new versions."""

from __future__ import annotations

from extender.record.config import PlacementConfig
from extender.record.events import PodVanished
from tests.placement.test_groups import GROUP, bind_all, group_of_three, members_of


def test_versions_of_other_members_do_not_keep_a_missing_member() -> None:
    world = group_of_three(rules=PlacementConfig(evictions_per_minute=1))
    bind_all(world)
    single = world.settled_pod()  # on n4
    world.bind_and_settle(single)
    world.wait(11.0)
    world.poll()  # no read of the jobs is due any more
    (job,) = world.live_jobs(single)
    world.disturb(job.id, "CANCELLED")
    world.poll()  # uses the limit of this minute
    world.pods.pop("u1")
    world.tell(PodVanished("u1", seen=False))
    late = world.replace_member(GROUP)
    world.settle()
    world.kubelet_starts("u2")
    world.settle()
    world.wait(61.0, times=10)
    assert members_of(world) == ["u2", "u3", late]
