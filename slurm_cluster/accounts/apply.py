"""`slurm-cluster accounts plan|apply FILE`: prints the differences, and applies the file.

Exit status:

* 0: slurmdbd matches the file.
* 1: `plan` finds a difference, or slurmdbd rejects a change.
* 2: the file is invalid, and nothing is applied.
* 3: slurmdbd did not answer in time."""

import time
from collections.abc import Callable, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Final, TypeVar

from service import yaml_file
from service.yaml_file import WrongFile
from slurm_cluster.accounts import sacctmgr
from slurm_cluster.accounts.difference import Step, batches, others, steps
from slurm_cluster.accounts.document import LEAST, Document
from slurm_cluster.accounts.entities import State, WrongAccounts, wanted
from slurm_cluster.accounts.sacctmgr import DatabaseAway
from slurm_cluster.programs import ProgramFailed

_AGAIN_S: Final = 3.0
_ROUNDS: Final = 3
"""Number of attempts. If slurmdbd stops answering during a step, slurmdbd may still have carried out the
step. So the next attempt reads the remaining differences again."""
_Result = TypeVar("_Result")
Say = Callable[[str], object]
Show = Callable[[Sequence[str]], object]


class Status(IntEnum):
    """The exit status."""

    DONE = 0
    DIFFERS = 1
    WRONG = 2
    AWAY = 3


def plan(file: Path, cluster: str, patience_s: float, say: Say, show: Show | None = None) -> Status:
    """Shows the changes that `apply` would make. If `show` is given, it gets all lines at once.
    Otherwise, `say` gets each line."""
    return _with_words(lambda: _plan(read(file), cluster, patience_s, say, show), say)


def apply(file: Path, cluster: str, patience_s: float, say: Say) -> Status:
    """Prints all differences, changes slurmdbd, and compares slurmdbd with the file again."""
    return _with_words(lambda: _apply(read(file), cluster, patience_s, say), say)


def read(file: Path) -> Document:
    """Returns the content of a file. Raises WrongFile with all errors of the format."""
    return yaml_file.read(file, Document, LEAST)


def _with_words(act: Callable[[], Status], say: Say) -> Status:
    try:
        return act()
    except WrongFile as wrong:
        problems = wrong.lines
    except WrongAccounts as wrong:
        problems = wrong.problems
    except DatabaseAway as away:
        say(f"slurmdbd does not answer: {away}")
        return Status.AWAY
    except ProgramFailed as failed:
        say(f"slurmdbd rejects a change: {failed}")
        return Status.DIFFERS
    for problem in problems:
        say(f"invalid: {problem}")
    say("nothing was changed")
    return Status.WRONG


def _plan(document: Document, cluster: str, patience_s: float, say: Say, show: Show | None) -> Status:
    _, todo = _difference(document, cluster, patience_s, say)
    if show is not None:
        show([line for step in todo for line in step.lines()])
    else:
        for step in todo:
            _show(step, say)
    return Status.DIFFERS if todo else Status.DONE


def _apply(document: Document, cluster: str, patience_s: float, say: Say) -> Status:
    for _ in range(_ROUNDS):
        cluster, todo = _difference(document, cluster, patience_s, say)
        if not todo:
            return Status.DONE
        for step in todo:
            _show(step, say)
        done = 0
        batch: Sequence[Step] = ()
        try:
            for batch in batches(todo):
                sacctmgr.carry_out(batch, cluster)
                done += len(batch)
        except DatabaseAway as away:
            say(f"slurmdbd stopped answering: {away}; the remaining changes are read again")
        except ProgramFailed:
            say(f"{done} of {len(todo)} changes are made; failed: {batch[0].lines()[0]}")
            raise
    _, todo = _difference(document, cluster, patience_s, say)
    for step in todo:
        say(f"not applied: {'; '.join(step.lines())}")
    return Status.DIFFERS if todo else Status.DONE


def _difference(document: Document, cluster: str, patience_s: float, say: Say) -> tuple[str, list[Step]]:
    """Returns the cluster's name, and the steps that make slurmdbd match the file. Raises WrongAccounts,
    DatabaseAway, ProgramFailed."""
    name, has = _patiently(lambda: _read(cluster), patience_s, say)
    wants = wanted(document, has)
    todo = steps(has, wants, prune=document.prune)
    if not todo:
        say("slurmdbd matches the file")
    if not document.prune and (left := others(has, wants)):
        say(f"not in the file, left unchanged: {', '.join(str(entity) for entity in left)}")
    return name, todo


def _read(cluster: str) -> tuple[str, State]:
    known = sacctmgr.clusters()
    name = cluster or (known[0] if len(known) == 1 else "")
    if not known:
        raise DatabaseAway("slurmctld has not registered a cluster yet")
    if name not in known:
        raise WrongAccounts([f"slurmdbd has the clusters {', '.join(known)}: choose one by --cluster"])
    return name, sacctmgr.read(name)


def _patiently(act: Callable[[], _Result], patience_s: float, say: Say) -> _Result:
    """Returns the result of `act`. Repeats `act` while slurmdbd does not answer, and reports the
    waiting time. Raises DatabaseAway after `patience_s`."""
    began = time.monotonic()
    while True:
        try:
            return act()
        except DatabaseAway as away:
            waited = time.monotonic() - began
            if waited >= patience_s:
                raise
            say(f"slurmdbd does not answer ({waited:.0f} of {patience_s:.0f} s): {away}")
            time.sleep(_AGAIN_S)


def _show(step: Step, say: Say) -> None:
    for line in step.lines():
        say(line)
