"""How many of Slurm's pending reasons there are, and how many of them a Pod's author is told in words.

`python -m tests.words FILE` (`make words`) writes both as JSON; the two are to be equal. Slurm's words
are kept in tests/data/pending_reasons.json by release: a test asks Slurm's own library if they are all.
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
"""Release -> Slurm's words."""


def figures() -> dict[str, int | list[str]]:
    """Returns what the file holds; `unexplained` names what the table lacks."""
    told = {row.name for row in PENDING_REASONS if row.sentence}
    of_slurm = set().union(*REASONS.values())
    explained = of_slurm & told
    return {
        "reasons_of_slurm": len(of_slurm),
        "reasons_explained": len(explained),
        "unexplained": sorted(of_slurm - told),
    }


def main() -> None:
    """Writes the figures."""
    into = Path(sys.argv[1])
    into.parent.mkdir(parents=True, exist_ok=True)
    into.write_text(json.dumps(figures(), indent=2) + "\n")


if __name__ == "__main__":
    main()
