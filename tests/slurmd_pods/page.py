"""Reads the examples of docs/tasks/pools.md: the files, the commands, and the output of the commands."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import yaml

from deploy.local.layout import CHECKOUT
from tests.readme import session

PAGE = CHECKOUT / "docs" / "tasks" / "pools.md"
SIZE = "CPUs=8 Sockets=1 CoresPerSocket=8 ThreadsPerCore=1 RealMemory=16000"
STAYS = {"local.slurm-extender.io/start-after": "3600", "local.slurm-extender.io/hangs": "yes"}
"""If a Pod has these annotations, kwok does not change the Pod's status, because the fleet runs the
Pod."""
_BLOCK = re.compile(r"```yaml\n(?P<file>.*?)```|(?P<shell>(?:^    [^\n]*\n)+)", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Step:
    """A file with its content, or a shell command with its printed output; "" if the page shows no
    output."""

    file: Mapping[str, Any] | None = None
    command: str = ""
    printed: str = ""


def examples() -> dict[int, tuple[Step, ...]]:
    """Returns the steps of each example by the example's number."""
    section = PAGE.read_text().split("\n## Examples\n", 1)[1].split("\n## ", 1)[0]
    _, *parts = re.split(r"^### (\d+)\. .*$", section, flags=re.MULTILINE)
    return {int(n): tuple(_steps(text)) for n, text in zip(parts[::2], parts[1::2], strict=True)}


def file_with(changed: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the file of the first example with changes in the pool. The pool's nodes also get sizes
    larger than this machine, and its Pods get the annotations STAYS."""
    whole: dict[str, Any] = deepcopy(dict(next(each.file for each in examples()[1] if each.file)))
    (pool,) = whole["pools"]
    _change(pool, {"slurm": {"conf": SIZE}, "template": {"metadata": {"annotations": STAYS}}})
    _change(pool, changed)
    return whole


def _steps(text: str) -> Iterable[Step]:
    for block in _BLOCK.finditer(text):
        if block["file"]:
            yield Step(file=yaml.safe_load(block["file"]))
        else:
            yield from (Step(None, *each) for each in session(block["shell"]))


def _change(found: dict[str, Any], changed: Mapping[str, Any]) -> None:
    """Changes a mapping in place. Merges mappings, and replaces lists."""
    for key, value in changed.items():
        if isinstance(value, Mapping):
            _change(found.setdefault(key, {}), value)
        else:
            found[key] = value
