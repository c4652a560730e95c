"""Writes the table of docs/waiting.md from the table that the code explains pending reasons by.

The text around the table is the page's own. `make docs` runs this; a test fails where it was not run.
"""

from __future__ import annotations

import sys
from pathlib import Path

from extender.pages.table import with_table
from extender.placement.pending_reasons import PENDING_REASONS, PendingReason

_BEGIN = "<!-- The table is made by `make docs` from extender/placement/pending_reasons.py. -->\n"
_END = "<!-- End of the table. -->\n"
_HEAD = """\
| Slurm's reason | the Pod is told | counts against its owner alone |
|---|---|---|
"""


def renewed(page: str) -> str:
    """Returns the page with its table as the code has it. Raises ValueError where it has no place for
    one."""
    return with_table(page, _BEGIN, _END, _HEAD + "".join(map(_row, PENDING_REASONS)))


def _row(row: PendingReason) -> str:
    alone = "yes" if row.of_its_owner else ""
    return f'| <a id="{row.name}"></a>`{row.name}` | {row.sentence} | {alone} |\n'


def main() -> None:
    """`python -m extender.pages.waiting PAGE` writes the table into the page."""
    page = Path(sys.argv[1])
    page.write_text(renewed(page.read_text()))


if __name__ == "__main__":
    main()
