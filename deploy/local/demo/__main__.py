"""Shows the main functions of slurm-extender on a separate cluster. The exit status is 0 if every step
was observed."""

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import httpx
import typer
from rich.console import Console

from deploy.local.cluster import Cluster
from deploy.local.demo.findings import Findings
from deploy.local.demo.pods import Pods
from deploy.local.demo.screen import make_console, make_screen, summary_table, things_to_try
from deploy.local.demo.slurm import Slurm
from deploy.local.demo.story import NODES, Stage, cluster_of, tell
from deploy.local.errors import AlreadyRunningError, ClusterError, MissingPrerequisitesError
from deploy.local.layout import CHECKOUT, Layout, python
from deploy.local.processes.supervision import tail
from deploy.local.progress import Report, Stopwatch
from deploy.local.spec import ClusterSpec

_BUILD: Final = CHECKOUT / "build"
_LONGEST_SOCKET_PATH: Final = 107  # bytes of sockaddr_un.sun_path, see unix(7)

app = typer.Typer(add_completion=False)


@app.command(help=__doc__)
def demo(
    *,
    nodes: Annotated[int, typer.Option(envvar="NODES", min=2, help="Nodes of the cluster.")] = NODES,
    keep: Annotated[bool, typer.Option(envvar="KEEP", help="Keep the cluster running.")] = False,
    directory: Annotated[Path, typer.Option(help="Directory of the cluster.")] = _BUILD / "demo-cluster",
    figures: Annotated[Path, typer.Option(help="File for the figures.")] = _BUILD / "demo.json",
) -> None:
    console = make_console()
    spec = cluster_of(nodes)
    place = _short_enough(directory.resolve())
    try:
        findings = _play(spec, place, figures, console, keep=keep)
    except KeyboardInterrupt:
        console.print("interrupted; the cluster is down", style="red")
        raise typer.Exit(130) from None
    except MissingPrerequisitesError as error:
        for line in error.missing:
            console.print(f"missing: {line}", style="red")
        raise typer.Exit(2) from None
    except (ClusterError, OSError, httpx.HTTPError, ExceptionGroup) as error:
        _explain(error, place, console)
        raise typer.Exit(1) from None
    raise typer.Exit(0 if findings.all_observed else 1)


def _play(spec: ClusterSpec, place: Path, figures: Path, console: Console, *, keep: bool) -> Findings:
    findings = Findings()
    stopwatch = Stopwatch(console.print)
    Cluster.prepare(spec, report=stopwatch)
    with _cluster(spec, place, stopwatch, findings, keep=keep) as cluster:
        asyncio.run(_perform(cluster, findings, console))
        findings.write(figures)
        _conclude(findings, figures, console)
        if keep:
            things_to_try(cluster, console)
    return findings


@contextmanager
def _cluster(
    spec: ClusterSpec, place: Path, report: Report, findings: Findings, *, keep: bool
) -> Iterator[Cluster]:
    """Yields a cluster. With `keep`, the cluster outlives the block unless the block fails."""
    up = Stopwatch(report)
    cluster = Cluster.up(spec, place, tied=not keep, report=report)
    findings.cluster_up_s = up.elapsed_s
    report(f"a cluster of {spec.nodes} nodes is up in {cluster.directory}")
    try:
        yield cluster
    except BaseException:
        cluster.down()
        raise
    if not keep:
        cluster.down()


async def _perform(cluster: Cluster, findings: Findings, console: Console) -> None:
    screen = make_screen(console)
    with screen.shown():
        async with Pods.of(cluster, screen.news) as pods:
            await tell(Stage(cluster, pods, Slurm(cluster), screen, findings))


def _conclude(findings: Findings, figures: Path, console: Console) -> None:
    console.print()
    console.print(summary_table(findings))
    compared, differed = len(findings.compared), len(findings.differences)
    console.print(f"\n{compared} bound Pods compared with squeue, {differed} differences.")
    for verdict in findings.failed:
        console.print(f"not observed: {verdict.expected}: {verdict.seen}", style="red")
    console.print(f"The figures are in {figures}.")


def _short_enough(directory: Path) -> Path:
    """Returns the directory, or a new short one if the paths of the cluster's sockets would be too
    long."""
    if len(bytes(Layout(directory).slurmrestd_socket)) <= _LONGEST_SOCKET_PATH:
        return directory
    return Path(tempfile.mkdtemp(prefix="slurm-demo-"))


def _explain(error: Exception, place: Path, console: Console) -> None:
    """Prints the error. If the error quotes no log, also prints the end of the log that changed last."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    console.print(f"error: {error}", style="red")
    if isinstance(error, AlreadyRunningError):
        console.print(f"to stop the cluster: {python()} -m deploy.local down --directory {place}")
        return
    logs = sorted(Layout(place).logs.glob("*.log"), key=lambda log: log.stat().st_mtime)
    if logs and "\n" not in str(error):
        console.print(f"the end of {logs[-1]}:\n{tail(logs[-1])}")


if __name__ == "__main__":
    app()
