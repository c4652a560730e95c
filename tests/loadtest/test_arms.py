"""The arms of the benchmark, on a small cluster: what works is timed, what does not is broken."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from deploy.local.cluster import Cluster
from deploy.local.progress import silent
from deploy.local.spec import EXTENDER_VERBS
from loadtest import measurement
from loadtest.arms import Arm, alone, noop, ours, slurm_alone, stubbed
from loadtest.crowd import Broken
from loadtest.figures import Burst
from loadtest.measurement import Bench
from loadtest.noop_binary import noop_binary

NODES = 10
PODS = 20


def test_only_our_own_extenders_pods_have_jobs() -> None:
    arms = [alone(NODES), noop(NODES, Path("noop")), ours(NODES)]
    assert [arm.name for arm in arms if arm.has_jobs] == ["ours"]


def test_the_arms_differ_in_nothing_but_the_extender() -> None:
    specs = [arm.spec for arm in (alone(NODES), noop(NODES, Path("noop")), ours(NODES))]
    extended = [
        replace(spec, extender=True, extender_argv=(), extender_verbs=EXTENDER_VERBS) for spec in specs
    ]
    assert extended == [ours(NODES).spec] * 3


def test_the_stub_stands_for_the_slurmrestd_of_ours_and_for_nothing_else() -> None:
    arm = stubbed(NODES, "http://127.0.0.1:1")
    assert (arm.stub_url, ours(NODES).stub_url) == ("http://127.0.0.1:1", None)
    assert arm.has_jobs
    assert replace(arm.spec, extender_settings=()) == ours(NODES).spec


def test_each_node_of_slurm_24_11_has_a_slurmd() -> None:
    spec = ours(NODES, "24.11").spec
    assert (len(spec.node_names), spec.external_names) == (NODES, [])
    assert (spec.slurm_size, spec.slurm_conf) == (
        ours(NODES).spec.slurm_size,
        ours(NODES).spec.slurm_conf,
    )


def test_slurm_alone_has_the_nodes_of_the_others() -> None:
    assert replace(slurm_alone(NODES).spec, kubernetes=True) == alone(NODES).spec


async def measure(arm: Arm, cluster: Cluster) -> tuple[Burst, list[float]]:
    async with Bench.of(arm, cluster) as bench:
        return await bench.burst(PODS), await bench.idle(2)


@pytest.mark.real
def test_pods_that_the_noop_extender_binds_are_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arm = noop(NODES, noop_binary(silent))
    with Cluster.up(arm.spec, tmp_path / "bench") as cluster:
        burst, idle = asyncio.run(measure(arm, cluster))
        assert len(burst.bound_ms) == PODS
        assert 0 < max(burst.bound_ms) <= burst.seconds * 1000
        assert burst.creating_s > 0
        assert 0 < burst.extender_cpu_ms_per_pod < burst.cpu_ms_per_pod
        assert min(idle) > 0

        cluster.kill("extender")
        cluster.start("extender", argv=["sleep", "60"], wait=False)
        monkeypatch.setattr(measurement, "_BOUND_WITHIN_S", 1.0)
        with pytest.raises(ExceptionGroup) as broken:
            asyncio.run(measure(arm, cluster))
        assert broken.group_contains(Broken, match=f"{PODS} Pods are not bound")
