"""Tests of the texts that the agent writes into a Pod's cgroup."""

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


@pytest.mark.parametrize(
    ("claim", "limits"),
    [
        (Claim("u", "ml/p", cores=(1, 3), memory_mb=64), Limits((1, 3, 5, 7), 64 * MIB)),
        (Claim("u", "ml/p", requested_mb=64), REQUEST),
        (Claim("u", "ml/p"), Limits()),  # a Pod without a job
    ],
)
def test_claim_becomes_limits(claim: Claim, limits: Limits) -> None:
    assert limits_of(claim, CORES) == limits


@pytest.mark.parametrize("cores", [(0, 1, 2, 3), (0, 1, 2, 3, 4)])
def test_a_request_does_not_limit_a_job_with_all_cores(cores: tuple[int, ...]) -> None:
    claim = Claim("u", "ml/p", cores=cores, requested_mb=64)
    assert limits_of(claim, CORES).memory == 0
    assert limits_of(claim._replace(memory_mb=32), CORES).memory == 32 * MIB
    assert limits_of(claim._replace(cores=(0, 1)), CORES).memory == 64 * MIB
    assert limits_of(claim._replace(cores=(0,)), None).memory == 0  # the map of cores is unknown


@pytest.mark.parametrize(("memory", "swap", "spared"), [(64, 0, False), (65, 0, True), (33, 32, True)])
def test_a_request_limits_no_pod_that_uses_more(memory: int, swap: int, spared: bool) -> None:
    now = FRESH | {name: str(used * MIB) for name, used in zip(USED, (memory, swap), strict=True)}
    written = REQUEST.sparing(now).corrections(now)
    assert written == ({} if spared else {MEMORY: str(64 * MIB), SWAP: "0"})
    granted = REQUEST._replace(requested=False)
    assert granted.sparing(now) == granted


@pytest.mark.parametrize(
    ("cores", "cpus", "problems"),
    [
        ((0, 4), CORES, ["Slurm gave it core 4, and this machine has 4"]),
        ((0,), None, []),  # the map of cores is unknown
    ],
)
def test_memory_is_limited_without_known_cores(
    cores: tuple[int, ...], cpus: Cpus | None, problems: list[str]
) -> None:
    limits = limits_of(Claim("u", "ml/p", cores=cores, memory_mb=1), cpus)
    assert limits.problems(FRESH) == problems
    assert limits.corrections(FRESH) == {MEMORY: str(MIB), SWAP: "0"}


@pytest.mark.parametrize(
    ("limits", "now", "written"),
    [
        (Limits((1, 5), 64 * MIB), FRESH, {CPUS: "1,5", MEMORY: "67108864", SWAP: "0"}),
        (Limits((1, 5), 64 * MIB), {CPUS: "1,5", MEMORY: "67108864", SWAP: "0"}, {}),
        (Limits(), FRESH, {}),
        (Limits((1,)), FRESH, {CPUS: "1"}),
        (Limits(memory=MIB), FRESH, {MEMORY: str(MIB), SWAP: "0"}),
        (Limits(memory=MIB), {MEMORY: "max"}, {MEMORY: str(MIB)}),  # a kernel without swap
    ],
)
def test_wrong_limits_are_corrected(
    limits: Limits, now: dict[str, str], written: dict[str, str]
) -> None:
    assert limits.corrections(now) == written


@pytest.mark.parametrize(
    ("limit", "used", "at_once", "step"),
    [
        ("max", 100, True, 0),  # nothing to free
        ("max", 1000, False, 744),
        ("744", 744, False, 488),
        ("744", 800, False, 488),  # the kernel could not free all memory
        ("232", 232, False, 100),
        ("100", 100, False, 0),
    ],
)
def test_memory_in_use_is_freed_in_steps(limit: str, used: int, at_once: bool, step: int) -> None:
    now = {MEMORY: limit if limit == "max" else str(int(limit) * MIB), USED[0]: str(used * MIB)}
    limits = Limits(memory=100 * MIB)
    assert limits.corrections(now) == ({MEMORY: str(100 * MIB)} if at_once else {})
    assert limits.reduction(now) == step * MIB


@pytest.mark.parametrize(("limits", "name"), [(Limits((1,)), CPUS), (Limits(memory=MIB), MEMORY)])
def test_cgroup_without_a_controller_is_reported(limits: Limits, name: str) -> None:
    assert limits.problems({}) == [f"its cgroup has no {name}: the controller is not enabled for Pods"]
    assert limits.corrections({}) == {}
    assert limits.problems(FRESH) == []
    assert Limits(memory=1, requested=True).problems({}) == []


@pytest.mark.parametrize("other", ["0-7", "1", "5", "2,6", ""])
def test_other_cores_are_replaced_by_the_jobs_cores(other: str) -> None:
    assert Limits((1, 5)).corrections({CPUS: other}) == {CPUS: "1,5"}


@given(st.integers(1, 1 << 30), st.integers(0, 1 << 30))
def test_memory_limit_is_lowered_to_the_grant_and_never_raised(granted: int, now: int) -> None:
    written = Limits(memory=granted).corrections({MEMORY: str(now)})
    assert written == ({MEMORY: str(granted)} if now > granted else {})
