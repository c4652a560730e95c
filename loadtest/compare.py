"""`python -m loadtest.compare CHECKOUT`: whether this checkout costs more CPU a Pod than another one.

Both bring up a cluster of their own and work in turn, each round in the other order. What counts is the
ratio within a round, and of those the median. The same work may take a third more CPU time a minute
later, on a machine that is shared: CPU is told in units of a yardstick, a small piece of work that each
side does all the time. Exit status 1: it costs more than allowed, or the run is broken.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Annotated, Final

import typer
from rich.box import ROUNDED
from rich.table import Table

from deploy.local.demo.screen import make_console
from deploy.local.layout import CHECKOUT
from deploy.local.progress import Stopwatch
from loadtest.crowd import Broken

_SIDE: Final = Path(__file__).with_name("compare_side.py")
_YARDSTICK: Final = "yardstick_ms"
_FIGURES: Final = {
    "pods_per_s": "Pods/s",
    "bound_ms_p50": "burst p50, ms",
    "extender_cpu_ms_per_pod": "CPU ms/Pod: extender",
    "cpu_ms_per_pod": "all",
    _YARDSTICK: "of the yardstick",
}
_HELD_TO: Final = ("extender_cpu_ms_per_pod", "cpu_ms_per_pod")

Burst = dict[str, float]
"""What one came to, by the names of _FIGURES."""

app = typer.Typer(add_completion=False)


@dataclass(slots=True)
class Comparison:
    """What each side's bursts came to, in their order."""

    before: list[Burst] = field(default_factory=list)
    after: list[Burst] = field(default_factory=list)

    def medians(self, name: str) -> tuple[float, float]:
        """Of the other checkout, and of this one."""
        before, after = (median(each[name] for each in side) for side in (self.before, self.after))
        return before, after

    def ratio(self, name: str) -> float:
        """The median of the rounds' ratios: this checkout's to the other's; of CPU in yardsticks."""
        rounds = zip(self.before, self.after, strict=True)
        return median(_measure_of(after, name) / _measure_of(before, name) for before, after in rounds)

    def costs_at_most(self, ratio: float) -> bool:
        """Whether this checkout costs no more CPU than so many times what the other does."""
        return all(self.ratio(name) <= ratio for name in _HELD_TO)

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        ratios = {name: round(self.ratio(name), 3) for name in _FIGURES}
        figures = {"ratios": ratios, "before": self.before, "after": self.after}
        path.write_text(json.dumps(figures, indent=1) + "\n")


def _measure_of(burst: Burst, name: str) -> float:
    return burst[name] / burst[_YARDSTICK] if name in _HELD_TO else burst[name]


class _Side:
    """A checkout at work: a process of its own, with that checkout's code."""

    def __init__(self, process: "subprocess.Popen[str]", checkout: Path) -> None:
        self._process = process
        self._checkout = checkout

    @classmethod
    @contextmanager
    def of(cls, checkout: Path, nodes: int) -> Iterator["_Side"]:
        # -P: only that checkout's packages are found, not those that lie beside the script.
        command = [sys.executable, "-P", str(_SIDE), str(nodes)]
        surroundings = os.environ | {"PYTHONPATH": str(checkout)}
        pipe = subprocess.PIPE
        with subprocess.Popen(
            command, cwd=checkout, env=surroundings, text=True, stdin=pipe, stdout=pipe
        ) as process:
            try:
                side = cls(process, checkout)
                side.hear()
                yield side
            finally:
                assert process.stdin is not None
                process.stdin.close()  # which ends it

    def burst(self, pods: int) -> Burst:
        assert self._process.stdin is not None
        print(pods, file=self._process.stdin, flush=True)
        return self.hear()

    def hear(self) -> Burst:
        """What it says next: it is up, or what a burst came to."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        try:
            told: Burst = json.loads(line)
        except ValueError:
            raise Broken(f"{self._checkout}: {line.strip() or 'it has ended'}") from None
        return told


@app.command(help=__doc__)
def compare(
    *,
    checkout: Annotated[
        Path, typer.Argument(help="Of the commit before.", exists=True, file_okay=False)
    ],
    nodes: Annotated[int, typer.Option(min=1, help="Nodes of each cluster.")] = 200,
    pods: Annotated[int, typer.Option(min=1, help="Pods of a burst.")] = 500,
    rounds: Annotated[int, typer.Option(min=1, help="Bursts of each.")] = 8,
    most: Annotated[float, typer.Option(help="How much CPU it may cost, to the other's.")] = 1.05,
    figures: Annotated[Path, typer.Option(help="Where they go.")] = CHECKOUT / "build/compare.json",
) -> None:
    console = make_console()
    figures.unlink(missing_ok=True)  # a broken run leaves none
    try:
        found = _measure(checkout.resolve(), nodes, pods, rounds, Stopwatch(console.print))
    except (Broken, OSError) as error:
        console.print(f"broken: {error}", style="red")
        raise typer.Exit(1) from None
    found.write(figures)
    console.print(table(found))
    kept = found.costs_at_most(most)
    words = f"at most {most} times the CPU of the other checkout"
    console.print(f"{'kept' if kept else 'FALLS SHORT'}: {words}", style="green" if kept else "red")
    console.print(f"The figures are in {figures}.")
    raise typer.Exit(0 if kept else 1)


def _measure(checkout: Path, nodes: int, pods: int, rounds: int, stopwatch: Stopwatch) -> Comparison:
    found = Comparison()
    with ExitStack() as stack:
        sides = []
        for name, where, bursts in (
            ("before", checkout, found.before),
            ("after", CHECKOUT, found.after),
        ):
            sides.append((name, stack.enter_context(_Side.of(where, nodes)), bursts))
            stopwatch(f"{name}: a cluster of {nodes} Nodes is up")
        for _ in range(rounds):
            for name, side, bursts in sides:
                bursts.append(side.burst(pods))
                stopwatch(f"{name}: {_in_words(bursts[-1])}")
            sides.reverse()
    return found


def _in_words(burst: Burst) -> str:
    pods_per_s, extender, every = (burst[name] for name in ("pods_per_s", *_HELD_TO))
    return f"{pods_per_s:.0f} Pods/s, CPU ms/Pod {extender:.2f} of the extender, {every:.1f} of all"


def table(found: Comparison) -> Table:
    """The medians of both sides, and of the rounds' ratios."""
    made = Table("", title=f"medians of {len(found.after)} bursts each", box=ROUNDED)
    for heading in _FIGURES.values():
        made.add_column(heading, justify="right")
    sides: Sequence[tuple[float, float]] = [found.medians(name) for name in _FIGURES]
    made.add_row("before", *(f"{before:.2f}" for before, _ in sides))
    made.add_row("after", *(f"{after:.2f}" for _, after in sides))
    made.add_row("ratio", *(f"{found.ratio(name):.2f}" for name in _FIGURES))
    return made


if __name__ == "__main__":
    app()
