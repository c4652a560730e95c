"""The record of unsteady tests: tests that fail first and pass at the second try.

    python -m tests.unsteady fixed TEST CAUSE  # removes a test from the runs, and notes its cause

tests/unsteady.json is committed and holds the last 20 runs of `make test` that passed outside of
CI. If a test is unsteady in two of these runs, `./check` fails until the test is fixed.
"""

import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import orjson

_CHECKOUT: Final = Path(__file__).parents[1]
RUN: Final = _CHECKOUT / "build" / "unsteady.json"
RECORD: Final = Path(__file__).with_suffix(".json")
_MAX_RUNS: Final = 20
_MAX_UNSTEADY: Final = 1
"""Maximum number of recorded runs in which a test may be unsteady."""


@dataclass(frozen=True, slots=True)
class Unsteady:
    """A test that failed at first and passed at the second try, with the output of both tries."""

    test: str
    first_log: str
    second_log: str


def write_run(path: Path, unsteady: Sequence[Unsteady]) -> None:
    """Writes the commit, and the name and both logs of each unsteady test."""
    path.parent.mkdir(exist_ok=True)
    write_json(path, {"commit": commit(), "unsteady": [asdict(each) for each in unsteady]})


def record_last() -> None:
    """Adds the run in build/unsteady.json to the record."""
    write_json(RECORD, record(read_json(RUN), read_json(RECORD)))


def record(run: dict[str, Any], kept: dict[str, Any]) -> dict[str, Any]:
    """Returns the record with another run, without the oldest runs beyond the last 20."""
    tests = [each["test"] for each in run["unsteady"]]
    runs = [*kept["runs"], {"commit": run["commit"], "unsteady": tests}]
    return {**kept, "runs": runs[-_MAX_RUNS:]}


def fixed(test: str, cause: str, kept: dict[str, Any]) -> dict[str, Any]:
    """Returns the record without the test, but with the cause that made the test unsteady. Raises
    KeyError if the record does not have the test."""
    if test not in _counts(kept["runs"]):
        raise KeyError(test)
    others = [[each for each in run["unsteady"] if each != test] for run in kept["runs"]]
    runs = [{**run, "unsteady": each} for run, each in zip(kept["runs"], others, strict=True)]
    return {"runs": runs, "fixed": [*kept["fixed"], {"test": test, "cause": cause}]}


def repeated(kept: dict[str, Any]) -> list[str]:
    """Returns the tests that were unsteady in more than `_MAX_UNSTEADY` recorded runs."""
    return sorted(test for test, count in _counts(kept["runs"]).items() if count > _MAX_UNSTEADY)


def _counts(runs: Iterable[dict[str, Any]]) -> Counter[str]:
    return Counter(test for run in runs for test in set(run["unsteady"]))


def commit() -> str:
    """Returns the short hash of the checkout's commit."""
    command = ["git", "-C", str(_CHECKOUT), "rev-parse", "--short=12", "HEAD"]
    return subprocess.run(command, check=False, capture_output=True, text=True).stdout.strip()


def read_json(path: Path) -> dict[str, Any]:
    """Returns the object in a file of JSON."""
    return dict(orjson.loads(path.read_bytes()))


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Writes JSON for a committed file: indented, with a newline at the end."""
    path.write_bytes(orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))


def main(arguments: Sequence[str]) -> int:
    """Runs the command. Returns 2 if the arguments are wrong."""
    match arguments:
        case ["fixed", test, cause]:
            write_json(RECORD, fixed(test, cause, read_json(RECORD)))
        case _:
            sys.stderr.write(__doc__ or "")
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
