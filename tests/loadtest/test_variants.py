"""Tests of the variants that a benchmark compares, on a small cluster. Bindings are timed, and a missing
binding is an error."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from deploy.local.spec import EXTENDER_VERBS
from loadtest.harness import bursts
from loadtest.harness.bursts import Bench, Burst
from loadtest.harness.command import Broken
from loadtest.harness.variants import ROOMY, Placer, Running, Variant

NODES = 10
PODS = 20
MEASURED_PODS = 80  # the kernel counts CPU in ticks of 10 ms: the noop extender may need less for 20
NOOP = Path("noop")
OURS = Variant(Placer.REAL, NODES)


def test_only_pods_of_the_own_extender_have_jobs() -> None:
    assert [placer for placer in Placer if Variant(placer, NODES).has_jobs] == ["stub", "real"]


def test_variants_differ_only_in_the_extender() -> None:
    specs = [
        Variant(Placer.ALONE, NODES).spec(),
        Variant(Placer.NOOP, NODES).spec(noop=NOOP),
        OURS.spec(),
    ]
    extended = [
        replace(spec, extender=True, extender_argv=(), extender_verbs=EXTENDER_VERBS) for spec in specs
    ]
    assert extended == [OURS.spec()] * 3


def test_stub_replaces_only_slurmrestd() -> None:
    spec = Variant(Placer.STUB, NODES).spec(stub_url="http://127.0.0.1:1")
    assert spec.extender_settings == (("SLURMRESTD_URL", "http://127.0.0.1:1"),)
    assert replace(spec, extender_settings=()) == OURS.spec()


def test_each_node_of_slurm_24_11_has_a_slurmd() -> None:
    spec = replace(OURS, like=replace(ROOMY, release="24.11")).spec()
    assert (len(spec.node_names), spec.external_names) == (NODES, [])
    assert (spec.slurm_size, spec.slurm_conf) == (OURS.spec().slurm_size, OURS.spec().slurm_conf)


def test_slurm_alone_has_the_nodes_of_other_variants() -> None:
    alone = replace(OURS, placer=Placer.REST).spec()
    assert replace(alone, kubernetes=True) == replace(OURS, placer=Placer.ALONE).spec()


async def measure(running: Running, pods: int) -> tuple[Burst, list[float]]:
    async with Bench.of(running) as bench:
        return await bench.burst(pods), await bench.idle(2)


@pytest.mark.real
@pytest.mark.timeout(400)
def test_pods_bound_by_the_noop_extender_are_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Variant(Placer.NOOP, NODES).up(tmp_path / "bench") as running:
        burst, idle = asyncio.run(measure(running, MEASURED_PODS))
        assert len(burst.bound_ms) == MEASURED_PODS
        assert 0 < max(burst.bound_ms) <= burst.seconds * 1000
        assert burst.creating_s > 0
        assert 0 < burst.extender_cpu_ms_per_pod < burst.cpu_ms_per_pod
        assert min(idle) > 0

        running.cluster.kill("extender")
        running.cluster.start("extender", argv=["sleep", "60"], wait=False)
        monkeypatch.setattr(bursts, "_BOUND_WITHIN_S", 1.0)
        with pytest.raises(ExceptionGroup) as broken:
            asyncio.run(measure(running, PODS))
        assert broken.group_contains(Broken, match=f"{PODS} Pods are not bound")
