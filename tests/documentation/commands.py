"""Finds the commands in the code blocks of pages."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from tests.documentation.pages import Block

SHELLS = frozenset({"bash", "console", "sh", "shell"})
"""Languages of code blocks with commands. If no line of such a block begins with `$`, every line is a
command."""
PROGRAMS = frozenset(
    {
        *(".venv/bin/python", "aws", "buildah", "curl", "docker", "eksctl", "gcloud", "git", "helm"),
        *("kubectl", "make", "node-agent", "openssl", "pip", "promtool", "pytest", "python"),
        *("sacct", "sacctmgr", "salloc", "sbatch", "scancel", "scontrol", "sdiag", "sinfo", "squeue"),
        *("slurm-extender", "slurm-extender-gate", "slurm-extender-hook"),
        *("srun", "ssh", "systemctl"),
    }
)
"""Programs by which the reader recognizes commands in blocks of other languages. Each line that begins
with such a program is a command."""


@dataclass(frozen=True)
class Command:
    """A command, and the output that the page shows; "" if the page shows no output."""

    text: str
    printed: str = ""


def commands(block: Block) -> Iterator[Command]:
    """Yields the commands of a block: the lines after `$ `. If no line has `$ `, yields all lines of a
    shell block, or the lines of other blocks that begin with a known program."""
    text = block.text.replace("\\\n", "")
    if re.search(r"^\$ ", text, re.MULTILINE):
        _, *parts = re.split(r"^\$ ", text, flags=re.MULTILINE)
        for part in parts:
            command, _, printed = part.partition("\n")
            yield Command(command.strip(), printed)
        return
    for line in filter(None, map(str.strip, text.splitlines())):
        if not line.startswith("#") and (block.language in SHELLS or _begins(line) in PROGRAMS):
            yield Command(line)


def _begins(line: str) -> str:
    """Returns the program that a line runs. Assignments before the program are left out: `A=b
    program`."""
    words = line.split()
    return next((word for word in words if not re.match(r"[A-Z_]+=", word)), "")


def words(command: str) -> list[str]:
    """Returns the words of a command, without a comment at the end."""
    return shlex.split(command, comments=True)
