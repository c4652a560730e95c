"""Compare the CPU time of a Pod, and the time until a single Pod is bound, with another checkout.

Each checkout has a cluster. The two clusters take turns, and each round reverses their order. The load
of both clusters comes from this checkout's package `loadtest`. The result is the median of the rounds'
ratios. On a shared machine, the same work may take a third more CPU time a minute later. So CPU time is
counted in units of a yardstick: a small piece of work right before and after each burst, in this
process, while both checkouts are idle.
"""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import fmean, median
from time import monotonic, thread_time
from typing import Annotated, Final

import typer

import loadtest
from deploy.local.layout import CHECKOUT
from loadtest.harness.budgets import BUDGETS, budgets, judged
from loadtest.harness.bursts import WARM_UP, Bench
from loadtest.harness.command import BUILD, Broken, command
from loadtest.harness.variants import Placer, Running, Variant

_YARDSTICK: Final = "yardstick_ms"
_PACED_S: Final = 1.0
_IDLE_PODS: Final = 20
_CPU: Final = {"extender_cpu_ms_per_pod": "CPU ms/Pod: extender", "cpu_ms_per_pod": "all"}
_FIGURES: Final = {
    "pods_per_s": "Pods/s",
    "bound_ms_p50": "burst p50, ms",
    "idle_bound_ms_p50": "one at a time p50, ms",
    **_CPU,
    _YARDSTICK: "of the yardstick",
}

Figures = Mapping[str, float]
"""Figures of a burst and of single Pods, by the names of _FIGURES."""


def compare(
    *,
    checkout: Annotated[Path, typer.Argument(help="The older checkout.", exists=True, file_okay=False)],
    nodes: Annotated[int, typer.Option(min=1, help="Nodes of each cluster.")] = 200,
    pods: Annotated[int, typer.Option(min=1, help="Pods of a burst.")] = 500,
    rounds: Annotated[int, typer.Option(min=1, help="Bursts of each checkout.")] = 8,
    budgets_file: Annotated[Path, typer.Option("--budgets", help="File of the budgets.")] = BUDGETS,
    figures: Annotated[Path, typer.Option(help="File for the figures.")] = BUILD / "compare.json",
) -> None:
    with command(figures) as run, ExitStack() as stack:
        found: dict[str, list[Figures]] = {"before": [], "after": []}
        sides = []
        for name, where in (("before", checkout.resolve()), ("after", CHECKOUT)):
            sides.append((name, stack.enter_context(_side(where, nodes, run.directory / name))))
            run.report(f"{name}: a cluster of {nodes} Nodes is up")
        for _ in range(rounds):
            for name, side in sides:
                paces, burst = _paces(), side(pods)
                pace = fmean([*paces, *_paces()]) * 1000
                found[name].append({**burst, _YARDSTICK: pace})
                texts = (f"{title} {found[name][-1][key]:.2f}" for key, title in _FIGURES.items())
                run.report(f"{name}: {', '.join(texts)}")
            sides.reverse()
        ratios = ratios_of(found["before"], found["after"])
        rows = {
            side: [median(each[name] for each in bursts) for name in _FIGURES]
            for side, bursts in found.items()
        }
        run.table(list(_FIGURES.values()), rows | {"ratio": list(ratios.values())})
        allowed = budgets("compare", budgets_file)
        run.conclude({"ratios": ratios, **found}, judged(allowed, {"ratios": ratios}))


def ratios_of(before: Sequence[Figures], after: Sequence[Figures]) -> dict[str, float]:
    """For each figure, returns the median of the rounds' ratios to the other checkout. CPU time is
    counted in units of the yardstick."""
    rounds = [{name: a[name] / b[name] for name in _FIGURES} for b, a in zip(before, after, strict=True)]
    return {
        name: round(median(each[name] / (each[_YARDSTICK] if name in _CPU else 1) for each in rounds), 3)
        for name in _FIGURES
    }


@contextmanager
def _side(checkout: Path, nodes: int, directory: Path) -> Iterator[Callable[[int], Figures]]:
    """Starts and warms a cluster of a checkout. Yields a function that measures a burst of a given
    number of Pods, and single Pods, on this cluster.

    The cluster has a process of its own, with the packages of the checkout, except `loadtest`. So the
    parts of the packages that `loadtest` uses must be alike in both checkouts. Raises Broken.
    """
    packages = directory / "packages"
    packages.mkdir(parents=True)
    (packages / "loadtest").symlink_to(Path(loadtest.__path__[0]).resolve())
    # With -P, the working directory has no precedence over these packages.
    command = (sys.executable, "-P", "-m", __name__, str(nodes), str(directory / "cluster"))
    surroundings, pipe = os.environ | {"PYTHONPATH": f"{packages}:{checkout}"}, subprocess.PIPE
    with subprocess.Popen(
        command, cwd=checkout, env=surroundings, text=True, stdin=pipe, stdout=pipe
    ) as process:
        asked, replies = process.stdin, process.stdout
        assert asked is not None
        assert replies is not None

        def burst(pods: int) -> Figures:
            asked.write(f"{pods}\n")
            asked.flush()
            line = replies.readline()
            try:
                return dict(json.loads(line))
            except ValueError:
                raise Broken(f"{checkout}: {line.strip() or 'the process has ended'}") from None

        with asked:  # the end of the input ends the process
            burst(WARM_UP)
            yield burst


async def _serve(running: Running) -> None:
    """Reads numbers of Pods, one on each line, and answers each line with the figures of a burst."""
    async with Bench.of(running) as bench:
        while line := await asyncio.to_thread(sys.stdin.readline):
            burst = await bench.burst(int(line))
            figures = {
                "pods_per_s": burst.pods_per_s,
                "bound_ms_p50": median(burst.bound_ms),
                "idle_bound_ms_p50": median(await bench.idle(_IDLE_PODS)),
                **{name: getattr(burst, name) for name in _CPU},
            }
            typer.echo(json.dumps(figures))


def _paces() -> list[float]:
    """Repeats the same small work for _PACED_S. Returns the CPU time of each repetition in seconds."""
    paces = []
    end = monotonic() + _PACED_S
    while monotonic() < end:
        began = thread_time()
        # About a millisecond of typical work: strings, dicts and memory.
        json.loads(json.dumps({f"name-{number}": [number] for number in range(1500)}))
        paces.append(thread_time() - began)
    return paces


if __name__ == "__main__":
    with Variant(Placer.REAL, int(sys.argv[1])).up(Path(sys.argv[2])) as _running:
        asyncio.run(_serve(_running))
