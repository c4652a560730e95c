"""Writes the table of docs/annotations.md from the table that the code reads annotations by.

The text around the table is the page's own. `make docs` runs this; a test fails where it was not run.
"""

from __future__ import annotations

import sys
from pathlib import Path

from extender.pages.table import with_table
from extender.request.annotations import ANNOTATIONS, Annotation

_BEGIN = "<!-- The table is made by `make docs` from extender/request/annotations.py. -->\n"
_END = "<!-- End of the table. -->\n"
_SBATCH = "[sbatch(1)](https://slurm.schedmd.com/sbatch.html)"
_HEAD = f"""\
| annotation | value | {_SBATCH} | example | invalid unless it is | note |
|---|---|---|---|---|---|
"""


def renewed(page: str) -> str:
    """Returns the page with its table as the code has it. Raises ValueError where it has no place for
    one."""
    return with_table(page, _BEGIN, _END, _HEAD + "".join(map(_row, ANNOTATIONS)))


def _row(row: Annotation) -> str:
    """Its name is the anchor that messages point to."""
    cells = (
        f'<a id="{row.name}"></a>`{row.name}`',
        row.kind.name,
        ", ".join(f"`{option}`" for option in row.sbatch.split(", ")),
        f"`{row.example}`",
        row.kind.allowed,
        row.note,
    )
    return f"| {' | '.join(cells)} |\n"


def main() -> None:
    """`python -m extender.pages.annotations PAGE` writes the table into the page."""
    page = Path(sys.argv[1])
    page.write_text(renewed(page.read_text()))


if __name__ == "__main__":
    main()
