"""Runs chaos: `python -m tests.chaos --duration 900 --seed 1`. The exit status is 1 if the run fails."""

import json
import time
from pathlib import Path
from typing import Annotated

import typer

from deploy.local.layout import CHECKOUT
from tests.chaos.run import run

_BUILD = CHECKOUT / "build"


def main(
    duration: Annotated[float, typer.Option(help="In seconds, the final audit not counted.")] = 900.0,
    seed: Annotated[int, typer.Option(help="0: another one each time.")] = 0,
    report: Annotated[Path, typer.Option(help="Where the figures go.")] = _BUILD / "chaos.json",
    directory: Annotated[Path, typer.Option(help="Of the cluster.")] = _BUILD / "chaos",
) -> None:
    """Attack a whole cluster at random, and check its Pods, jobs and nodes."""
    result = run(seed or time.time_ns() % 1_000_000, duration, directory, _say)
    report.parent.mkdir(exist_ok=True)
    report.write_text(json.dumps(result.as_json(), indent=1) + "\n")
    _say(json.dumps(result.as_json(), indent=1))
    if result.failed:
        _say(f"VIOLATED with seed {result.seed}; the logs are in {directory / 'logs'}")
        raise typer.Exit(1)


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - the progress of the run


if __name__ == "__main__":
    typer.run(main)
