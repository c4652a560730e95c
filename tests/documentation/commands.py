"""Finds the commands in the code blocks of pages."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from tests.documentation.pages import Block

SHELLS = frozenset({"bash", "console", "sh", "shell"})
"""Languages of blocks in which every line is a command if no line begins with `$`."""
PROGRAMS = frozenset(
    {
        *(".venv/bin/python", "aws", "buildah", "curl", "docker", "eksctl", "gcloud", "git", "helm"),
        *("kubectl", "make", "node-agent", "openssl", "pip", "promtool", "pytest", "python"),
        *("sacct", "sacctmgr", "salloc", "sbatch", "scancel", "scontrol", "sdiag", "sinfo", "squeue"),
        *("slurm-extender", "slurm-extender-gate", "slurm-extender-hook"),
        *("srun", "ssh", "systemctl"),
    }
)
"""Programs with which a command begins in a block of another language."""


@dataclass(frozen=True)
class Command:
    """A command and its printed output; "" if the page shows no output."""

    text: str
    printed: str = ""


def commands(block: Block) -> Iterator[Command]:
    """Yields the lines after `$ `. Without `$ `, yields all lines of a shell block, or the lines with a
    known program."""
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
    """Returns the program of a line, without assignments before the program: `A=b program`."""
    words = line.split()
    return next((word for word in words if not re.match(r"[A-Z_]+=", word)), "")


def words(command: str) -> list[str]:
    """Returns the words of a command, without a comment at the end."""
    return shlex.split(command, comments=True)
