"""The output for the user: a live table on a terminal, elsewhere one plain line for each event."""

import asyncio
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from rich.box import ROUNDED
from rich.console import Console
from rich.live import Live
from rich.table import Table

from deploy.local.cluster import Cluster
from deploy.local.demo.findings import Findings
from deploy.local.demo.pods import Sighting, pod_manifest
from deploy.local.kubernetes.components import EXTENDER_PROGRAM
from deploy.local.layout import python

_PLAIN_WIDTH: Final = 120
_REPAINT_S: Final = 0.1
_AROUND_TABLE: Final = 8  # lines of a terminal for headings and messages
_STYLES: Final = {"waiting": "yellow", "bound": "cyan", "running": "green", "ending": "magenta"}


def make_console() -> Console:
    """Returns a console that is wide enough for the tables, even if the width of the output is unknown.
    Markup is off, because logs contain many brackets."""
    width = None if Console().is_terminal else _PLAIN_WIDTH
    return Console(highlight=False, markup=False, width=width)


def pods_table(pods: Iterable[Sighting]) -> Table:
    """Returns a table with one row for each Pod."""
    table = Table("Pod", "job", "state", "Slurm's pending reason", "Node", box=None, pad_edge=False)
    table.add_column("ms", justify="right")
    for pod in pods:
        milliseconds = "" if pod.bound_ms is None else f"{pod.bound_ms:.1f}"
        cells = (str(pod.job_id or ""), pod.state, _reason(pod), pod.node or "", milliseconds)
        table.add_row(f"{pod.name}{_size(pod)}", *cells, style=_STYLES.get(pod.state, "dim"))
    return table


def event_line(pod: Sighting) -> str | None:
    """Returns a line with the news about a Pod, or None if there is no news."""
    job = f"job {pod.job_id}"
    if pod.gone:
        return f"{pod.name} is gone"
    if pod.bound_ms is not None:
        return f"{pod.name} is bound to {pod.node} ({job}) after {pod.bound_ms:.1f} ms"
    if pod.reason is not None:
        return f"{pod.name} waits ({job}): {pod.reason}"
    return None


def _reason(pod: Sighting) -> str:
    was = f"(was {pod.waited_for})" if pod.waited_for else ""
    return pod.reason or was


def _size(pod: Sighting) -> str:
    return f" ({pod.cpus} CPU{f', {pod.gpus} GPU' if pod.gpus else ''})"


class Screen:
    """Output as plain lines, for logs and pipes."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._pods: dict[str, Sighting] = {}
        self._lines: dict[str, str | None] = {}

    def say(self, sentence: str) -> None:
        """Announces the next step."""
        self._console.print(f"\n{sentence}", style="bold")

    def tell(self, line: str) -> None:
        """Shows a result."""
        self._console.print(f"  {line}")

    def news(self, pod: Sighting) -> None:
        """Shows a new version of a Pod."""
        self._pods[pod.name] = pod
        line = event_line(pod)
        if line is not None and line != self._lines.get(pod.name):
            self._lines[pod.name] = line
            self.tell(line)

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Shows the Pods while the block runs, and all Pods once at the end."""
        yield
        self._console.print()
        self._console.print(pods_table(self._pods.values()))

    @contextmanager
    def still(self) -> Iterator[None]:
        """Paints nothing while the block runs: painting would slow down the measured calls."""
        yield


class LiveScreen(Screen):
    """A live table of the Pods, below the messages."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._live = Live(
            get_renderable=self._newest, console=console, auto_refresh=False, transient=True
        )
        self._repaint: asyncio.TimerHandle | None = None
        self._painting = True

    def news(self, pod: Sighting) -> None:
        self._pods[pod.name] = pod
        if self._repaint is None:
            self._repaint = asyncio.get_running_loop().call_later(_REPAINT_S, self._paint)

    @contextmanager
    def shown(self) -> Iterator[None]:
        with super().shown(), self._live:
            yield

    @contextmanager
    def still(self) -> Iterator[None]:
        self._painting = False
        try:
            yield
        finally:
            self._painting = True

    def _paint(self) -> None:
        self._repaint = None
        if self._painting:
            self._live.refresh()
        else:
            self._repaint = asyncio.get_running_loop().call_later(_REPAINT_S, self._paint)

    def _newest(self) -> Table:
        """Returns the newest rows that fit: a terminal cannot scroll a live table."""
        rows = max(5, self._console.height - _AROUND_TABLE)
        return pods_table(list(self._pods.values())[-rows:])


def make_screen(console: Console) -> Screen:
    return LiveScreen(console) if console.is_terminal else Screen(console)


def summary_table(findings: Findings) -> Table:
    """Returns a table of the expected events, and whether each was observed."""
    table = Table("to be observed", "observed", "what was seen", box=ROUNDED)
    for verdict in findings.verdicts:
        observed, style = ("yes", "green") if verdict.observed else ("no", "red")
        table.add_row(verdict.expected, observed, verdict.seen, style=style)
    return table


def things_to_try(cluster: Cluster, console: Console) -> None:
    """Prints commands for a user of the kept cluster, and writes the Pod for the first command."""
    pod, programs = cluster.directory / "pod.json", cluster.directory / "bin"
    pod.write_text(json.dumps(pod_manifest("mine", cpus=2, gpus=1), indent=2))
    console.print("\nThe cluster keeps running. Try:", style="bold")
    for command in (
        f"{programs}/kubectl create --filename {pod}",
        f"{programs}/kubectl get pods --output wide",
        f"{programs}/kubectl describe pod mine",
        f"{programs}/squeue --format '%.10i %.20j %.9T %.8u %.10N %r'",
        f"{programs}/scontrol show job",
        f"{programs}/{EXTENDER_PROGRAM} audit",
        f"{programs}/scancel --name mine@default",
        f"SLURM_AS=alice {programs}/sbatch --gres gpu:1 --wrap 'sleep 60'",
    ):
        console.print(f"  {command}", soft_wrap=True)
    console.print(f"The logs are in {cluster.logs}. To stop the cluster:", soft_wrap=True)
    console.print(f"  {python()} -m deploy.local down --directory {cluster.directory}", soft_wrap=True)
