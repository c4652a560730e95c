"""Follows an example of docs/tasks/pools.md as a reader does: writes the files, runs the commands, and
compares the output."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable, Mapping
from typing import Any

import yaml

from tests.eventually import eventually_not
from tests.slurmd_pods.page import SIZE, Step, examples, file_with
from tests.slurmd_pods.world import World

_SLURMD_ALONE = ("--pod-selector", "app.kubernetes.io/name=slurmd")
"""Options that limit `kubectl drain` to slurmd Pods. Without them, kubectl refuses to drain a Node,
because the agents' Pods of the fleet belong to no DaemonSet."""


def follow(
    world: World, number: int, before: Callable[[str], object] = lambda _: None
) -> dict[str, float]:
    """Follows an example, and calls `before` with each command before the command runs. Returns the time
    when each command ran (time.monotonic())."""
    typed = {}
    for step in examples()[number]:
        if step.file is not None:
            _write(world, step.file)
        else:
            before(step.command)
            typed[step.command] = time.monotonic()
            _type(world, step)
    return typed


def _write(world: World, file: Mapping[str, Any]) -> None:
    if "kind" in file:
        world.cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(dict(file)))
    elif "pools" in file:
        world.write(yaml.safe_dump(file_with({})))
    else:
        world.write(yaml.safe_dump(file_with(file)))


def _type(world: World, step: Step) -> None:
    if not step.printed:
        _run(world, step.command)
        return
    expected = _pattern(step.printed)

    def other() -> str:
        printed = _run(world, step.command)
        return "" if re.fullmatch(expected, _plain(printed)) else printed or "nothing"

    eventually_not(other, f"{step.command}\n{step.printed}", 60)


def _run(world: World, command: str) -> str:
    """Runs a command, and returns the output."""
    cluster = world.cluster
    match shlex.split(command):
        case ["ssh", node, "systemctl", "start", "slurmd"]:
            cluster.register(node, f"Feature=dynamic Gres=gpu:h100:4 {SIZE}")
            return ""
        case ["ssh", node, "systemctl", "stop", "slurmd"]:
            cluster.stop(f"slurmd-{node}")
            return ""
        case ["kubectl", "drain", *rest]:
            return cluster.kubectl("drain", *rest, *_SLURMD_ALONE).stdout
        case ["kubectl", *rest]:
            return cluster.kubectl(*rest).stdout
        case [program, *rest]:
            return cluster.run_slurm(program, *rest).stdout
    raise AssertionError(f"no command: {command}")


def _pattern(printed: str) -> str:
    """Returns a pattern that matches the printed text. In the text, `...` stands for anything within a
    line, and a line `...` stands for any number of lines."""
    lines = re.escape(_plain(printed)).replace(r"\.\.\.", ".*").split("\\\n")
    return "".join("(.*\n)*" if line == ".*" else f"{line}\n" for line in lines[:-1])


def _plain(printed: str) -> str:
    """Returns the text with single spaces between columns."""
    return "".join(" ".join(line.split()) + "\n" for line in printed.strip().splitlines())
