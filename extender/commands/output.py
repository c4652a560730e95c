"""Output of commands: a table, or JSON for programs."""

import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from extender.preflight.result import Result, Verdict
from service.command_line import Output

_STYLES: Final = {
    Verdict.PASS: "green",
    Verdict.WARN: "yellow",
    Verdict.FAIL: "bold red",
    Verdict.SKIPPED: "dim",
}
_WIDTHS: Final = (8, 21)
"""Widths of the columns for verdicts and for names of checks. The widths are fixed, so that lines
printed one by one are aligned."""
_OF_A_LOG: Final = 180
"""Width of lines if standard output is no terminal."""


def console() -> Console:
    """Returns the console for tables."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else _OF_A_LOG)


def print_line(result: Result, where: Console, skipped: Sequence[str] = ()) -> None:
    """Prints an outcome and its fix. `skipped` has the names of the skipped checks to list below the
    outcome."""
    with where.capture() as printed:
        where.print(_line(result, skipped))
    where.file.write("".join(f"{each.rstrip()}\n" for each in printed.get().splitlines()))
    where.file.flush()


def _line(result: Result, skipped: Sequence[str]) -> Table:
    made = Table.grid(padding=(0, 1))
    for width in _WIDTHS:
        made.add_column(min_width=width, no_wrap=True)
    made.add_row(Text(result.verdict, _STYLES[result.verdict]), result.check, Text(result.words))
    if result.fix:
        word = "look" if result.verdict is Verdict.SKIPPED else "fix"
        made.add_row("", "", Text(f"{word}: {result.fix}", "italic"))
    if skipped:
        note = f"not checked because of this ({len(skipped)}): {', '.join(skipped)}"
        made.add_row("", "", Text(note, "dim"))
    return made


def _folded(results: Sequence[Result]) -> Iterator[tuple[Result, Sequence[str]]]:
    """Yields the results, each with the names of the skipped checks to list below the result. A check
    that was skipped because of another check is listed below the other check. If several checks were
    skipped with the same message, the first check gets a line, and the other checks are listed below."""
    skipped: dict[str, list[str]] = {}
    for each in results:
        if each.verdict is Verdict.SKIPPED:
            skipped.setdefault(each.because or each.words, []).append(each.check)
    for each in results:
        if each.verdict is not Verdict.SKIPPED:
            yield each, skipped.get(each.check, ())
        elif not each.because and skipped[each.words][0] == each.check:
            yield each, skipped[each.words][1:]


def summary(results: Sequence[Result]) -> str:
    """Returns the number of outcomes of each kind."""
    counts = Counter(result.verdict for result in results)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in Verdict if counts[verdict])


def show(results: Sequence[Result], output: Output) -> None:
    """Prints all outcomes on standard output."""
    if output is Output.JSON:
        sys.stdout.write(f"{json.dumps(_document(results), indent=2)}\n")
        return
    where = console()
    for result, skipped in _folded(results):
        print_line(result, where, skipped)
    where.print(summary(results))


def _document(results: Sequence[Result]) -> dict[str, object]:
    """Returns the outcomes for JSON: each with `check`, `verdict`, `found`, `fix` and `because`."""
    entries = [
        {
            "check": each.check,
            "verdict": each.verdict,
            "found": each.words,
            "fix": each.fix or None,
            "because": each.because or None,
        }
        for each in results
    ]
    return {"results": entries, "failed": any(each.verdict is Verdict.FAIL for each in results)}
