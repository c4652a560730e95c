"""What is written into a Pod's cgroup, whatever stands there."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_agent.enforcement.limits import Limits, limits_of
from node_agent.machine.cpus import Cpus
from node_agent.pods.cgroups import CPUS, MEMORY, SWAP, USED
from node_agent.pods.claims import Claim

MIB = 1 << 20
CORES = Cpus(((0, 4), (1, 5), (2, 6), (3, 7)))
FRESH = {CPUS: "", MEMORY: "max", SWAP: "max"}
REQUEST = Limits((), 64 * MIB, requested=True)


def test_a_jobs_cores_are_all_their_threads() -> None:
    claim = Claim("u", "ml/p", cores=(1, 3), memory_mb=64)
    assert limits_of(claim, CORES) == Limits((1, 3, 5, 7), 64 * MIB)


def test_a_pod_is_limited_to_its_request_if_its_job_has_no_memory() -> None:
    assert limits_of(Claim("u", "ml/p", requested_mb=64), CORES) == REQUEST


@pytest.mark.parametrize("cores", [(0, 1, 2, 3), (0, 1, 2, 3, 4)])
def test_a_request_does_not_limit_a_job_with_all_cores(cores: tuple[int, ...]) -> None:
    claim = Claim("u", "ml/p", cores=cores, requested_mb=64)
    assert limits_of(claim, CORES).memory == 0
    assert limits_of(claim._replace(memory_mb=32), CORES).memory == 32 * MIB
    assert limits_of(claim._replace(cores=(0, 1)), CORES).memory == 64 * MIB


def test_a_request_limits_no_job_whose_part_of_the_node_is_unknown() -> None:
    assert limits_of(Claim("u", "ml/p", cores=(0,), requested_mb=64), None).memory == 0


@pytest.mark.parametrize(("memory", "swap", "spared"), [(64, 0, False), (65, 0, True), (33, 32, True)])
def test_a_request_limits_no_pod_that_uses_more(memory: int, swap: int, spared: bool) -> None:
    now = FRESH | {name: str(used * MIB) for name, used in zip(USED, (memory, swap), strict=True)}
    written = REQUEST.sparing(now).corrections(now)
    assert written == ({} if spared else {MEMORY: str(64 * MIB), SWAP: "0"})
    granted = REQUEST._replace(requested=False)
    assert granted.sparing(now) == granted


def test_cores_that_the_machine_does_not_have_are_told_of_and_memory_is_limited() -> None:
    limits = limits_of(Claim("u", "ml/p", cores=(0, 4), memory_mb=1), CORES)
    assert limits.problems(FRESH) == ["Slurm gave it core 4, and this machine has 4"]
    assert limits.corrections(FRESH) == {MEMORY: str(MIB), SWAP: "0"}


def test_where_the_map_of_cores_is_not_known_memory_is_limited() -> None:
    limits = limits_of(Claim("u", "ml/p", cores=(0,), memory_mb=1), None)
    assert limits.problems(FRESH) == []
    assert limits.corrections(FRESH) == {MEMORY: str(MIB), SWAP: "0"}


def test_a_pod_of_no_job_is_left_alone() -> None:
    assert limits_of(Claim("u", "ml/p"), CORES).corrections(FRESH) == {}


def test_all_is_written_once() -> None:
    limits = Limits((1, 5), 64 * MIB)
    written = limits.corrections(FRESH)
    assert written == {CPUS: "1,5", MEMORY: "67108864", SWAP: "0"}
    assert limits.corrections(FRESH | written) == {}


def test_what_slurm_does_not_count_is_not_limited() -> None:
    assert Limits((1,)).corrections(FRESH) == {CPUS: "1"}
    assert Limits(memory=MIB).corrections(FRESH) == {MEMORY: str(MIB), SWAP: "0"}


@pytest.mark.parametrize(("limits", "name"), [(Limits((1,)), CPUS), (Limits(memory=MIB), MEMORY)])
def test_a_cgroup_without_a_controller_is_told_of(limits: Limits, name: str) -> None:
    assert limits.problems({}) == [f"its cgroup has no {name}: the controller is not enabled for Pods"]
    assert limits.corrections({}) == {}
    assert limits.problems(FRESH) == []


def test_a_kernel_without_swap_needs_no_limit_of_it() -> None:
    assert Limits(memory=MIB).corrections({MEMORY: "max"}) == {MEMORY: str(MIB)}


@pytest.mark.parametrize("other", ["0-7", "1", "5", "2,6", ""])
def test_other_cores_are_made_the_jobs(other: str) -> None:
    assert Limits((1, 5)).corrections({CPUS: other}) == {CPUS: "1,5"}


@given(st.integers(1, 1 << 30), st.integers(0, 1 << 30))
def test_memory_is_never_more_than_granted_and_less_is_left(granted: int, now: int) -> None:
    written = Limits(memory=granted).corrections({MEMORY: str(now)})
    assert written == ({MEMORY: str(granted)} if now > granted else {})


def test_a_request_is_no_problem_without_the_memory_controller() -> None:
    assert Limits(memory=1, requested=True).problems({}) == []
    assert Limits(memory=1).problems({}) != []
