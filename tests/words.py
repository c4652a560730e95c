"""Counts Slurm's pending reasons, and the reasons that the extender explains to a Pod's author.

`python -m tests.words FILE` (`make words`) writes both numbers as JSON. The numbers must be equal. The
file tests/data/pending_reasons.json has Slurm's reasons by release. A test compares this file with
Slurm's own library.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

from extender.explain.pending_reasons import PENDING_REASONS

REASONS: Mapping[str, tuple[str, ...]] = {
    release: tuple(names)
    for release, names in json.loads(
        (Path(__file__).parent / "data" / "pending_reasons.json").read_text()
    ).items()
}
"""By release: the names of Slurm's pending reasons."""


def figures() -> dict[str, int | list[str]]:
    """Returns the content that `main` writes. `unexplained` has the reasons that the extender does not
    explain."""
    told = {row.name for row in PENDING_REASONS if row.sentence}
    of_slurm = set().union(*REASONS.values())
    explained = of_slurm & told
    return {
        "reasons_of_slurm": len(of_slurm),
        "reasons_explained": len(explained),
        "unexplained": sorted(of_slurm - told),
    }


def main() -> None:
    """Writes the numbers into the file that the first argument names."""
    into = Path(sys.argv[1])
    into.parent.mkdir(parents=True, exist_ok=True)
    into.write_text(json.dumps(figures(), indent=2) + "\n")


if __name__ == "__main__":
    main()
