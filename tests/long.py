"""Runs the tests and measurements too long for `make test`, and notes the last pass of each.

    python -m tests.long             # all suites, one after the other, for some hours
    python -m tests.long chaos load  # two suites
    python -m tests.long --page      # writes the table of docs/design/development.md

tests/long.json is committed, and has the minutes and the commit of each suite's last pass. A pass is
noted at once, but only if the checkout has no changes, because the noted commit must be the tested
commit. If a suite fails, the command runs the remaining suites, and then fails.
"""

import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from extender.pages import replaced, table_head, table_row
from tests.unsteady import commit, read_json, write_json

CHECKOUT: Final = Path(__file__).parents[1]
RECORD: Final = Path(__file__).with_suffix(".json")
PAGE: Final = CHECKOUT / "docs" / "design" / "development.md"
SOURCE: Final = "tests/long.json"


@dataclass(frozen=True, slots=True)
class Suite:
    """A target of the Makefile, and the statement that a pass of the target proves."""

    target: str
    proves: str


SUITES: Final = (
    Suite("test-releases", "each test of `make test`, and each long test, on both releases of Slurm"),
    Suite("test-oldest", "the end-to-end tests and the chart on Kubernetes 1.31"),
    Suite("test-node", "the node agent and slurmd Pods on a real kubelet and kernel"),
    Suite("test-install", "images, install, upgrade and uninstall of the chart on a kubelet"),
    Suite("test-slurm-chart", "a whole Slurm by its chart, on a kubelet, through kills and lost parts"),
    Suite("test-pools", "roll-outs of slurmd Pods under load; a thousand slurmds"),
    Suite("conformance", "Kubernetes' own scheduling specs pass with the extender, too"),
    Suite("chaos", "the invariants, while every component fails at random for 25 minutes"),
    Suite("load", "times of kube-scheduler's calls at 50, 1,000 and 5,000 Nodes"),
    Suite("bench-quick", "Pods per second beside a no-op extender, on 200 Nodes"),
    Suite("bench", "the same on up to 5,000 Nodes; 50,000 waiting Pods; a restart with 10,000"),
)


def run(suites: Sequence[Suite]) -> list[str]:
    """Runs the suites in order, and writes each pass into the record at once. Returns the targets that
    failed."""
    failed = list[str]()
    for suite in suites:
        began, at = time.monotonic(), clean_commit()
        if subprocess.run(["make", suite.target], cwd=CHECKOUT, check=False).returncode != 0:
            failed.append(suite.target)
        elif at is None or clean_commit() != at:
            sys.stderr.write(f"{suite.target} passed, not noted: commit all changes before a run\n")
        else:
            minutes = round((time.monotonic() - began) / 60, 1)
            write_json(RECORD, read_json(RECORD) | {suite.target: {"commit": at, "minutes": minutes}})
            PAGE.write_text(page(read_json(RECORD)))
    return failed


def clean_commit() -> str | None:
    """Returns the commit of the checkout; None if a file differs from the commit. The record and its
    page may differ."""
    written = (f":!{path.relative_to(CHECKOUT)}" for path in (RECORD, PAGE))
    command = ["git", "status", "--porcelain", "--", ".", *written]
    status = subprocess.run(command, cwd=CHECKOUT, check=False, capture_output=True)
    return None if status.returncode != 0 or status.stdout else commit()


def rows(record: Mapping[str, Any]) -> list[str]:
    """Returns the table of the page."""
    return [
        *table_head("suite", "what it proves", "minutes", "last passed at"),
        *(
            table_row(f"`make {each.target}`", each.proves, *_last(record.get(each.target)))
            for each in SUITES
        ),
    ]


def _last(run: Mapping[str, Any] | None) -> tuple[str, str]:
    return (f"{run['minutes']:.0f}", f"`{run['commit']}`") if run else ("", "not recorded yet")


def page(record: Mapping[str, Any]) -> str:
    """Returns docs/design/development.md with a current table."""
    return replaced(PAGE.read_text(), SOURCE, rows(record))


def main(arguments: Sequence[str]) -> int:
    """Runs the named suites; without names, runs all suites. Returns 1 if a suite failed, and 2 for an
    unknown name."""
    if [*arguments] == ["--page"]:
        PAGE.write_text(page(read_json(RECORD)))
        return 0
    if unknown := set(arguments) - {each.target for each in SUITES}:
        sys.stderr.write(f"no such suite: {', '.join(sorted(unknown))}\n{__doc__}")
        return 2
    failed = run([each for each in SUITES if not arguments or each.target in arguments])
    if failed:
        sys.stderr.write(f"failed: {', '.join(failed)}\n")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
