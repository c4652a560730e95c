"""`python -m loadtest.profile_bursts`: what the extender and kube-apiserver use their CPU for in bursts.

By py-spy and perf, which have to be there: neither is installed. What they have seen is in the folder,
for flame graphs; the shares of what each function and all below it used are printed.
"""

import asyncio
import re
import shutil
import signal
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import typer

from deploy.local.cluster import Cluster
from deploy.local.layout import CHECKOUT
from deploy.local.progress import Stopwatch
from loadtest.arms import ours
from loadtest.measurement import Bench

_WARM_UP: Final = 50
_BURSTS: Final = 3
_BOUND_WITHIN_S: Final = 300.0
_STOPS_WITHIN_S: Final = 60.0
_A_SECOND: Final = 200
_SHOWN_FROM: Final = 0.01
_LINE: Final = re.compile(r":\d+(?=\))")
_PERF: Final = ("--freq", str(_A_SECOND), "--call-graph", "fp")

app = typer.Typer(add_completion=False)


@app.command(help=__doc__)
def profile_bursts(
    *,
    nodes: Annotated[int, typer.Option(min=1, help="Nodes.")] = 1000,
    pods: Annotated[int, typer.Option(min=1, help="Pods of a burst.")] = 1000,
    into: Annotated[Path, typer.Option(help="Where the profiles go.")] = CHECKOUT / "build/profile",
) -> None:
    missing = [tool for tool in ("py-spy", "perf") if not shutil.which(tool)]
    if missing:
        typer.echo(f"missing: {', '.join(missing)}")
        raise typer.Exit(2)
    into.mkdir(parents=True, exist_ok=True)
    stopwatch = Stopwatch(typer.echo)
    directory = Path(tempfile.mkdtemp(prefix="profile-"))
    with Cluster.up(ours(nodes).spec, directory) as cluster:
        stopwatch(f"{nodes} Nodes are up")
        asyncio.run(_record(cluster, nodes, pods, into, stopwatch))
    shutil.rmtree(directory)
    for name, stacks in (
        ("kube-apiserver", stacks_of_perf(_perf_script(into).splitlines())),
        ("extender", (into / "extender.txt").read_text().splitlines()),
    ):
        typer.echo(f"{name}:")
        typer.echo("\n".join(shares(stacks)))


async def _record(cluster: Cluster, nodes: int, pods: int, into: Path, stopwatch: Stopwatch) -> None:
    async with Bench.of(ours(nodes), cluster) as bench:
        await bench.burst(_WARM_UP)
        with (
            _recording(_py_spy(cluster.pid("extender"), into / "extender.txt")),
            _recording(_perf(cluster.pid("kube-apiserver"), into / "kube-apiserver.data")),
        ):
            for _ in range(_BURSTS):
                burst = await bench.burst(pods, within_s=_BOUND_WITHIN_S)
                stopwatch(f"{pods} Pods at once, {burst.pods_per_s:.0f}/s")


def _py_spy(pid: int, file: Path) -> list[str]:
    """Whoever holds the interpreter is seen: what waits, or is in a system call, is not."""
    how = ("--gil", "--nonblocking", "--rate", str(_A_SECOND), "--duration", "3600")
    return ["py-spy", "record", "--pid", str(pid), *how, "--format", "raw", "--output", str(file)]


def _perf(pid: int, file: Path) -> list[str]:
    return ["perf", "record", "--pid", str(pid), *_PERF, "--output", str(file)]


@contextmanager
def _recording(command: Sequence[str]) -> Iterator[None]:
    """As long as the block lasts."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as recorder:
        try:
            yield
        finally:
            recorder.send_signal(signal.SIGINT)
            recorder.wait(_STOPS_WITHIN_S)


def _perf_script(into: Path) -> str:
    command = ["perf", "script", "--input", str(into / "kube-apiserver.data"), "--fields", "ip,sym"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def stacks_of_perf(lines: Iterable[str]) -> Iterator[str]:
    """py-spy's raw lines, of what perf script has told: a sample's frames, the innermost first, a line
    "address function" each, and an empty line behind them."""
    frames = list[str]()
    for line in (*lines, ""):
        _, _, function = line.strip().partition(" ")
        if function:
            frames.append(function)
        elif frames:
            yield f"{';'.join(reversed(frames))} 1"
            frames.clear()


def shares(stacks: Iterable[str]) -> Iterator[str]:
    """Lines of "share  function (file)", the greatest first, of py-spy's raw lines
    "caller (file:line);callee (file:line) samples"."""
    within, total = Counter[str](), 0
    for stack in stacks:
        frames, _, samples = stack.rpartition(" ")
        total += int(samples)
        for function in {_LINE.sub("", frame) for frame in frames.split(";")}:
            within[function] += int(samples)
    for function, count in within.most_common():
        if count < _SHOWN_FROM * total:
            break
        yield f"{count / total:6.1%}  {function}"


if __name__ == "__main__":
    app()
