"""A Pod's cgroup follows what stands on the Pod."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from node_agent.enforcement.keeper import Keeper
from node_agent.kernel.device_guard import DeviceGuard
from node_agent.machine.cpus import Cpus
from node_agent.pods.cgroups import PodCgroup, PodCgroups
from node_agent.pods.claims import Claim

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Machine:
    """Four cores of two threads, one Pod, and no devices."""

    def __init__(self, place: Path) -> None:
        self.place = place
        for name, says in (("cpuset.cpus", ""), ("memory.max", "max"), ("memory.swap.max", "max")):
            (place / name).write_text(says)

    def pods(self) -> Iterator[PodCgroup]:
        yield PodCgroup("u1", 7, populated=True, place=self.place)

    def known(self) -> tuple[()]:
        return ()

    def change(self, *_: object) -> None:
        pass

    def says(self, name: str) -> str:
        return (self.place / name).read_text()


def test_cores_that_are_written_anew_are_the_pods_at_once_and_nobody_elses_doing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Cpus, "read", lambda: Cpus(((0, 4), (1, 5), (2, 6), (3, 7))))
    machine = Machine(tmp_path)
    keeper = Keeper(tmp_path / "gres", cast(PodCgroups, machine), cast(DeviceGuard, machine))
    keeper.read_cpus()
    for cores, cpus in (((0,), "0,4"), ((2, 3), "2-3,6-7")):
        keeper.keep({"u1": Claim("u1", "ml/one", cores=cores, memory_mb=1, of_job=True)})
        assert machine.says("cpuset.cpus") == cpus
        assert keeper.limits.repaired == 0
    (tmp_path / "cpuset.cpus").write_text("0-7")
    keeper.keep({"u1": Claim("u1", "ml/one", cores=(2, 3), memory_mb=1, of_job=True)})
    assert machine.says("cpuset.cpus") == "2-3,6-7"
    assert keeper.limits.repaired == 1


def test_a_request_limits_a_pod_as_soon_as_the_pod_uses_less(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    keeper = Keeper(tmp_path / "gres", cast(PodCgroups, machine), cast(DeviceGuard, machine))
    claims = {"u1": Claim("u1", "ml/one", requested_mb=1, of_job=True)}
    for used, memory, swap in ((2 << 20, "max", "max"), (1 << 20, str(1 << 20), "0")):
        (tmp_path / "memory.current").write_text(str(used))
        keeper.keep(claims)
        assert (machine.says("memory.max"), machine.says("memory.swap.max")) == (memory, swap)
        assert keeper.limits.repaired == 0
