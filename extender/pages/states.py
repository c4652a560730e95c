"""Draws the states of a placeholder in docs/architecture.md, and says what news means in each.

The text around that is the page's own. `make docs` runs this; a test fails where it was not run.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from extender.pages.table import with_table
from extender.placement.states import MOVES, State
from extender.placement.table import TABLE, Row

_BEGIN = "<!-- Made by `make docs` from extender/placement/states.py and table.py. -->\n"
_END = "<!-- End of what is made. -->\n"
_COLUMNS = {
    "does": "its next effect",
    "polled": "its job's state",
    "lost": "its job is lost",
    "read": "its job is read",
    "grace": "its job is preempted",
    "bound": "a Pod is bound",
    "changed": "another request",
}
"""The fields of a row of the table, and what the page calls them."""


def renewed(page: str) -> str:
    """Returns the page with the states as the code has them. Raises ValueError where it has no place for
    them."""
    drawn = "".join(f"    {line}\n" for line in _lines())
    picture = f"```mermaid\nstateDiagram-v2\n{drawn}```\n"
    return with_table(page, _BEGIN, _END, "\n".join((picture, *_table(), "")))


def _lines() -> Iterator[str]:
    yield f"[*] --> {State.SEEN}"
    for before, moves in MOVES.items():
        for after, why in moves.items():
            yield f"{before} --> {after}: {why}"
    yield f"{State.DONE} --> [*]"


def _table() -> Iterator[str]:
    yield _row("State", *_COLUMNS.values())
    yield _row(*("---" for _ in ("", *_COLUMNS)))
    for state, row in TABLE.items():
        yield _row(state, *(_cell(row, column) for column in _COLUMNS))


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(row: Row, column: str) -> str:
    """A function's name; empty where nothing follows."""
    name = getattr(row, column).__name__
    return "" if name.startswith("_") else f"`{name}`"


def main() -> None:
    """`python -m extender.pages.states PAGE` writes the states into the page."""
    page = Path(sys.argv[1])
    page.write_text(renewed(page.read_text()))


if __name__ == "__main__":
    main()
