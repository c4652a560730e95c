"""Tests of a Pod's cgroup after changes of the Pod's annotations."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from node_agent.enforcement.keeper import Keeper
from node_agent.machine.cpus import Cpus
from node_agent.pods.cgroups import PodCgroup
from node_agent.pods.claims import Claim

if TYPE_CHECKING:
    from pathlib import Path


class Kept(Keeper):
    """Keeps a machine of four cores with two threads each, one Pod, and no devices."""

    def __init__(self, place: Path) -> None:
        self.place = place
        for name, says in (("cpuset.cpus", ""), ("memory.max", "max"), ("memory.swap.max", "max")):
            (place / name).write_text(says)
        cgroup = PodCgroup("u1", 7, populated=True, place=place)
        cgroups: Any = SimpleNamespace(pods=lambda: [cgroup])
        guard: Any = SimpleNamespace(known=tuple, change=lambda *_: None)
        super().__init__(place / "gres", cgroups, guard)
        self.cores = Cpus(((0, 4), (1, 5), (2, 6), (3, 7)))

    def says(self, name: str) -> str:
        return (self.place / name).read_text()


def test_changed_grant_is_no_repair(tmp_path: Path) -> None:
    keeper = Kept(tmp_path)
    for cores, cpus in (((0,), "0,4"), ((2, 3), "2-3,6-7")):
        keeper.keep({"u1": Claim("u1", "ml/one", cores=cores, memory_mb=1, job=7)})
        assert keeper.says("cpuset.cpus") == cpus
        assert keeper.limits.repaired == 0
    (tmp_path / "cpuset.cpus").write_text("0-7")
    keeper.keep({"u1": Claim("u1", "ml/one", cores=(2, 3), memory_mb=1, job=7)})
    assert keeper.says("cpuset.cpus") == "2-3,6-7"
    assert keeper.limits.repaired == 1


def test_request_limits_a_pod_once_the_pod_uses_less(tmp_path: Path) -> None:
    keeper = Kept(tmp_path)
    claims = {"u1": Claim("u1", "ml/one", requested_mb=1, job=7)}
    for used, memory, swap in ((2 << 20, "max", "max"), (1 << 20, str(1 << 20), "0")):
        (tmp_path / "memory.current").write_text(str(used))
        keeper.keep(claims)
        assert (keeper.says("memory.max"), keeper.says("memory.swap.max")) == (memory, swap)
        assert keeper.limits.repaired == 0
