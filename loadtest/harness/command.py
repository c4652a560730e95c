"""The common frame of all measuring commands. A broken run keeps its logs."""

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import typer
from aiohttp import ClientError
from rich.box import ROUNDED
from rich.console import Console
from rich.table import Column, Table

from deploy.local.errors import ClusterError, MissingPrerequisitesError
from deploy.local.layout import CHECKOUT
from deploy.local.progress import Stopwatch
from loadtest.harness.budgets import NoBudgets, Verdict, passed
from slurm_client.errors import SlurmError
from wellknown.quoting import words_of

BUILD: Final = CHECKOUT / "build"
_PLAIN_WIDTH: Final = 120
_LACKS: Final = 2
_COLOURS: Final = {True: "green", False: "red", None: "yellow"}


class Broken(Exception):
    """A failure that makes the run's figures meaningless. The message names the failure."""


WENT_WRONG: Final = (Broken, NoBudgets, ClusterError, SlurmError, OSError, ClientError, ExceptionGroup)


def first(error: Exception) -> str:
    """Returns the message of an error. For a group of errors, returns the message of the first error."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return words_of(error)


@dataclass(slots=True)
class Command:
    """One run of a command. `directory` belongs to this run only, and is kept if the run is `broken`."""

    figures: Path
    console: Console
    report: Stopwatch
    directory: Path
    broken: bool = False
    status: int = 0

    def table(self, headings: Sequence[str], rows: Mapping[str, Sequence[float | None]]) -> None:
        """Prints a table of figures, with "-" for missing figures."""
        table = Table("", *(Column(heading, justify="right") for heading in headings), box=ROUNDED)
        for name, figures in rows.items():
            table.add_row(name, *("-" if each is None else f"{each:.2f}" for each in figures))
        self.console.print(table)

    def write(self, figures: Mapping[str, Any], verdicts: Sequence[Verdict]) -> None:
        entries = [asdict(each) | {"word": each.word} for each in verdicts]
        self.figures.parent.mkdir(parents=True, exist_ok=True)
        self.figures.write_text(json.dumps({**figures, "verdicts": entries}, indent=1) + "\n")

    def conclude(
        self, figures: Mapping[str, Any], verdicts: Sequence[Verdict], *, partly: bool = False
    ) -> None:
        """Writes the figures and prints the verdicts. `partly` is True if only a part of the figures was
        measured."""
        self.write(figures, verdicts)
        for verdict in verdicts:
            self.console.print(str(verdict), style=_COLOURS[verdict.kept])
        self.console.print(f"The figures are in {self.figures}.")
        self.status = 0 if passed(verdicts, partly=partly) and not self.broken else 1

    def end(self, status: int, *words: str) -> None:
        """Ends the run without figures."""
        self.status, self.broken = status, status != _LACKS
        for line in words:
            self.console.print(line, style="red")


@contextmanager
def command(figures: Path) -> Iterator[Command]:
    """Runs the block as one run of a command. At the end of the block, raises typer.Exit with the exit
    status."""
    width = None if Console().is_terminal else _PLAIN_WIDTH
    console = Console(highlight=False, markup=False, width=width)
    figures.unlink(missing_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="loadtest-"))
    run = Command(figures, console, Stopwatch(console.print), directory)
    try:
        yield run
    except KeyboardInterrupt:
        run.end(130, "interrupted; the clusters are down")
    except MissingPrerequisitesError as error:
        run.end(_LACKS, *(f"missing: {line}" for line in error.missing))
    except WENT_WRONG as error:
        run.end(1, f"broken: {first(error)}")
    if run.broken:
        console.print(f"the logs are in {directory}")
    else:
        shutil.rmtree(directory)
    raise typer.Exit(run.status)
