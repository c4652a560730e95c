"""Measures how long a gang takes from the start of its job to the last Binding, beside the same Pods
without Slurm.

The cluster without Slurm has kube-scheduler alone. There, the Pods wait at a scheduling gate, and this
process removes all gates at once, as the extender does for a gang. The two clusters take turns, so that
other work of the machine slows both.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, aclosing
from functools import partial
from pathlib import Path
from statistics import median
from typing import Annotated, Any, Final

import typer

from loadtest.harness.budgets import budgets, judged
from loadtest.harness.bursts import WARM_UP, Bench
from loadtest.harness.command import BUILD, Broken, command
from loadtest.harness.concurrently import for_each
from loadtest.harness.pods import PODS, Manifest, Pod, Wanted, ask, pod_manifest
from loadtest.harness.slurm import all_ended, starts
from loadtest.harness.variants import Placer, Variant
from slurm_client.rest.client import SlurmRest

_CPUS: Final = 2
_GPUS: Final = 1
_PER_NODE: Final = 8
"""Members on a node of `variants.ROOMY`."""
_GATE: Final = "example.com/not-yet"
_GANG: Final = "sunk.coreweave.com/gang"
_MEMBERS_PER_NODE: Final = "sunk.coreweave.com/members-per-node"
_WITHIN_S: Final = 120.0
_SETTLE_S: Final = 0.5
_MERGE: Final = "application/merge-patch+json"
_FIGURES: Final = {
    "start_bound_s": "job start to last Binding, s",
    "partial_s": "first to last Binding, s",
    "filter_calls_per_member": "/filter calls a member",
    "rest_mb": "MB to and from slurmrestd",
    "api_writes_per_member": "writes to kube-apiserver a member",
    "extender_cpu_ms_per_member": "CPU ms a member: extender",
    "cpu_ms_per_member": "all",
}

Figures = Mapping[str, float]


def bench_gangs(
    *,
    members: Annotated[int, typer.Option(min=2, help="Pods of the gang.")] = 512,
    rounds: Annotated[int, typer.Option(min=1, help="Gangs of each cluster.")] = 5,
    figures: Annotated[Path, typer.Option(help="File for the figures.")] = BUILD / "gangs.json",
) -> None:
    """Measure a gang from the start of its job to the last Binding, beside the same Pods without Slurm.
    Also measures the costs of a member beside the costs of single Pods. Takes about five minutes."""
    nodes = -(-members // _PER_NODE)
    with command(figures) as run, ExitStack() as stack:
        ours, alone = (
            stack.enter_context(Variant(placer, nodes).up(run.directory / placer))
            for placer in (Placer.REAL, Placer.ALONE)
        )
        run.report(f"two clusters of {nodes} Nodes are up")

        async def measure() -> tuple[list[Figures], list[Figures], list[float]]:
            gangs, without, single = list[Figures](), list[Figures](), list[float]()
            async with Bench.of(ours) as of_gangs, Bench.of(alone) as of_alone:
                await of_gangs.burst(WARM_UP)
                await of_alone.burst(WARM_UP)
                for number in range(rounds):
                    gangs.append(await _gang(of_gangs, members, number))
                    without.append(await _without_slurm(of_alone, members, number))
                    single.append((await of_gangs.burst(members)).extender_cpu_ms_per_pod)
                    run.report(
                        f"gang: {gangs[-1]['start_bound_s']:.2f} s; without Slurm:"
                        f" {without[-1]['start_bound_s']:.2f} s"
                    )
            return gangs, without, single

        gangs, without, single = asyncio.run(measure())
        found = summary(gangs, without, single)
        rows = {"gang": _medians(gangs), "without Slurm": _medians(without)}
        table = {name: [each.get(key) for key in _FIGURES] for name, each in rows.items()}
        run.table(list(_FIGURES.values()), table)
        conditions = {"members": members, "nodes": nodes, "rounds": rounds}
        run.conclude({**found, **conditions}, judged(budgets("bench-gangs"), found))


def summary(
    gangs: Sequence[Figures], without: Sequence[Figures], single_cpu_ms: Sequence[float]
) -> dict[str, Any]:
    """Returns the content of build/gangs.json: medians of all rounds, and medians of the ratios within a
    round."""
    pairs = list(zip(gangs, without, strict=True))
    cpu = zip(gangs, single_cpu_ms, strict=True)
    return {
        **_medians(gangs),
        "partial_s_max": max(each["partial_s"] for each in gangs),
        "start_bound_ratio": median(g["start_bound_s"] / w["start_bound_s"] for g, w in pairs),
        "api_writes_ratio": median(
            g["api_writes_per_member"] / w["api_writes_per_member"] for g, w in pairs
        ),
        "extender_cpu_ratio": median(g["extender_cpu_ms_per_member"] / ms for g, ms in cpu),
        "gangs": list(gangs),
        "without_slurm": list(without),
    }


def _medians(rounds: Sequence[Figures]) -> dict[str, float]:
    return {name: round(median(each[name] for each in rounds), 3) for name in rounds[0]}


async def _gang(bench: Bench, size: int, number: int) -> Figures:
    """Places a gang. The members are created in any order, so the job starts after the last of them
    exists."""
    cluster, name = bench.running.cluster, f"gang-{number}"
    # No GPU of this cluster has a file, so job/allocate grants GPUs only for a fixed division.
    gang = {_GANG: name, f"{_GANG}-size": str(size), _MEMBERS_PER_NODE: str(_PER_NODE)}
    with (cluster.logs / "slurmctld.log").open() as log:
        log.seek(0, 2)
        before = await bench.meters.before()
        made = partial(pod_manifest, annotations=gang)
        pods = await bench.pods.create(_wanted(name, size), made=made)
        await bench.pods.all_bound(_WITHIN_S)
        await bench.pods.all_running(_WITHIN_S)
        await asyncio.sleep(_SETTLE_S)
        spent = (await bench.meters.after()).since(before)
        (job_id,) = {pod.job_id for pod in pods}
        started = starts(log.read()).get(job_id)
    if started is None:
        raise Broken(f"slurmctld's log has no start of job {job_id}")
    begin = started - (time.time() - time.perf_counter())  # the log has the time of the wall clock
    if places := crowded(pods):
        raise Broken(f"more than {_PER_NODE} members have a Node: {places}")
    await bench.pods.clear(_WITHIN_S)
    async with aclosing(SlurmRest(bench.running.slurmrestd_url, cluster.token_file)) as slurm:
        await all_ended(slurm, [job_id], _WITHIN_S)
    return {
        **times(pods, begin),
        "filter_calls_per_member": spent.filter_s.count / size,
        "rest_mb": spent.rest_bytes_for_pods / 1e6,
        "api_writes_per_member": sum(spent.api_writes.values()) / size,
        "extender_cpu_ms_per_member": spent.cpu_ms("extender") / size,
        "cpu_ms_per_member": sum(spent.cpu_s.values()) * 1000 / size,
    }


async def _without_slurm(bench: Bench, size: int, number: int) -> Figures:
    """Places the same Pods by kube-scheduler alone, after all their gates were removed at once."""
    before = await bench.meters.before()
    pods = await bench.pods.create(_wanted(f"alone-{number}", size), made=_gated)
    begin = time.perf_counter()
    await for_each(pods, partial(_ungate, bench))
    await bench.pods.all_bound(_WITHIN_S)
    await bench.pods.all_running(_WITHIN_S)
    spent = (await bench.meters.after()).since(before)
    await bench.pods.clear(_WITHIN_S)
    return {
        **times(pods, begin),
        "api_writes_per_member": sum(spent.api_writes.values()) / size,
        "cpu_ms_per_member": sum(spent.cpu_s.values()) * 1000 / size,
    }


async def _ungate(bench: Bench, pod: Pod) -> None:
    await ask(bench.session, "PATCH", f"{PODS}/{pod.name}", {"spec": {"schedulingGates": []}}, _MERGE)


def _gated(name: str, cpus: int, gpus: int) -> Manifest:
    made = pod_manifest(name, cpus, gpus)
    made["spec"]["schedulingGates"] = [{"name": _GATE}]
    return made


def _wanted(name: str, size: int) -> list[Wanted]:
    return [(f"{name}-{rank}", _CPUS, _GPUS) for rank in range(size)]


def times(pods: Sequence[Pod], begin: float) -> dict[str, float]:
    """Returns the times of a gang in seconds. `begin` is the start of the job, by `perf_counter`."""
    first, last = min(pod.bound for pod in pods), max(pod.bound for pod in pods)
    return {"start_bound_s": last - begin, "partial_s": last - first}


def crowded(pods: Sequence[Pod]) -> dict[str, int]:
    """Returns the Nodes with more members than GPUs."""
    nodes = [pod.node for pod in pods]
    return {node: nodes.count(node) for node in set(nodes) if nodes.count(node) > _PER_NODE}
