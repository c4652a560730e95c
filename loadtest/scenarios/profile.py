"""Profile the CPU use of the extender and of kube-apiserver in bursts. Needs py-spy and perf: this
command does not install them. build/profile has a flame graph of the extender, and perf's report of
kube-apiserver. The report has each function's CPU use, with the functions it calls."""

import asyncio
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import typer

from deploy.local.errors import MissingPrerequisitesError
from deploy.local.progress import Report
from loadtest.harness.bursts import WARM_UP, Bench
from loadtest.harness.command import BUILD, command
from loadtest.harness.variants import Placer, Running, Variant

_BURSTS: Final = 3
_STOPS_WITHIN_S: Final = 60.0
# The extender's profile contains only code that holds the interpreter's lock (GIL), so no waits and no
# system calls.
_PY_SPY: Final = ("--gil", "--nonblocking", "--rate", "200", "--duration", "3600")
_PERF: Final = ("--freq", "200", "--call-graph", "fp")


def profile(
    *,
    nodes: Annotated[int, typer.Option(min=1, help="Nodes.")] = 1000,
    pods: Annotated[int, typer.Option(min=1, help="Pods of a burst.")] = 1000,
    into: Annotated[Path, typer.Option(help="Folder for the profiles.")] = BUILD / "profile",
) -> None:
    with command(into / "bursts.json") as run:
        if missing := [tool for tool in ("py-spy", "perf") if not shutil.which(tool)]:
            raise MissingPrerequisitesError(missing)
        into.mkdir(parents=True, exist_ok=True)
        with Variant(Placer.REAL, nodes).up(run.directory / "cluster") as running:
            run.report(f"{nodes} Nodes are up")
            rates = asyncio.run(_record(running, pods, into, run.report))
        report = ("perf", "report", "--stdio", "--children", "--input", into / "kube-apiserver.data")
        with (into / "kube-apiserver.txt").open("w") as file:
            subprocess.run(report, stdout=file, check=True)
        run.conclude({"pods_per_s": rates}, [])


async def _record(running: Running, pods: int, into: Path, report: Report) -> list[float]:
    apiserver, extender = (str(running.cluster.pid(name)) for name in ("kube-apiserver", "extender"))
    svg, data = into / "extender.svg", into / "kube-apiserver.data"
    async with Bench.of(running) as bench:
        await bench.burst(WARM_UP)
        rates = []
        spying = _recording("py-spy", *_PY_SPY, "--pid", extender, "--output", svg)
        with spying, _recording("perf", *_PERF, "--pid", apiserver, "--output", data):
            for _ in range(_BURSTS):
                rates.append((await bench.burst(pods)).pods_per_s)
                report(f"{pods} Pods at once, {rates[-1]:.0f}/s")
        return rates


@contextmanager
def _recording(tool: str, *options: str | Path) -> Iterator[None]:
    """Records a profile until the end of the block."""
    command, nowhere = (tool, "record", *options), subprocess.DEVNULL
    with subprocess.Popen(command, stdout=nowhere, stderr=nowhere) as recorder:
        try:
            yield
        finally:
            recorder.send_signal(signal.SIGINT)
            recorder.wait(_STOPS_WITHIN_S)
