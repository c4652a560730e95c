"""Reads the examples in README, as a reader of README copies them."""

from __future__ import annotations

import re
from pathlib import Path

README = (Path(__file__).parent.parent / "README.md").read_text()

Session = tuple[tuple[str, str], ...]
"""Commands of a shell, each with the printed output."""


def first_pod() -> str:
    """Returns the YAML of the first Pod."""
    return README.split("```yaml\n", 1)[1].split("```", 1)[0]


def seen_of_the_first_pod() -> Session:
    """Returns the commands kubectl and squeue with their output, from the lines after the first Pod."""
    told = README.split("```yaml\n", 1)[1].split("```", 1)[1]
    lines = re.match(r"\s*\n(?:<!--.*?-->\s*\n)?((?:    .*\n)+)", told)
    assert lines is not None, "nothing is shown after the first Pod"
    return session(lines[1])


def session(text: str) -> Session:
    """Reads indented lines: `$ command`, and then the printed output."""
    shown = [line.removeprefix("    ") for line in text.splitlines(keepends=True)]
    _, *parts = re.split(r"^\$ ", "".join(shown), flags=re.MULTILINE)
    return tuple((command, printed) for command, _, printed in (part.partition("\n") for part in parts))
