"""Finds Pods and jobs that got devices before slurmd renumbered the devices.

Slurm grants devices by number. slurmd numbers the devices at each start and reconfiguration, even while
jobs have devices. A Pod or job that got devices before a renumbering keeps the files of these devices.
But by the new numbers, Slurm may give the same files to another job.

The kernel knows the devices of Pods. Only Slurm knows the devices of native jobs, so each native job
from before a renumbering counts as a holder of all renumbered devices.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import structlog
from pydantic import BaseModel, ValidationError

from node_agent.enforcement.decision import Entry
from node_agent.machine.devices import Number
from node_agent.machine.numbered import Machine, Part
from node_agent.pods.cgroups import PodCgroup, has_processes
from node_agent.pods.claims import Claim

log = structlog.get_logger()

FILE: Final = "numbers.json"
"""Name of the file with the state, in the same folder as slurmd's list (/run). A boot removes the
folder, and also ends all Pods and jobs with devices."""
_MOST_NAMED: Final = 5

Numbers = Mapping[str, Sequence[str]]
"""Files of each device by Slurm's number, for example "gpu 3"."""


class Holder(NamedTuple):
    """A Pod with devices, or a native job."""

    name: str
    """Name for messages, for example "Pod ml/a" or "job_33"."""
    cgroup: int
    """The kernel's number of the cgroup. The kernel never uses the number again."""
    place: Path


class _Before(BaseModel):
    """Holders that got their devices by the numbers of an earlier list."""

    numbers: dict[str, tuple[str, ...]]
    holders: list[Holder]


class _State(BaseModel):
    """The state that the next agent needs."""

    numbers: dict[str, tuple[str, ...]]
    """Numbers of slurmd's last list."""
    before: list[_Before] = []


class Numbering:
    """Compares slurmd's lists. If the numbers change, remembers the holders from before the change."""

    def __init__(self, file: Path) -> None:
        """Parameter `file` is the file that keeps the state for the next agent."""
        self._file = file
        self._state = self._kept = _read(file)
        self.held = frozenset[Number]()
        """Renumbered devices that holders from before the change may still have, as the kernel's
        numbers."""
        self.words = ""
        """Message about renumbered devices and their holders, or "" if no holder remains."""
        self.problem = ""
        """Reason why the state could not be written, or "". Without the state, the next agent does not
        know the holders from before a renumbering."""

    def is_new(self, machine: Machine) -> bool:
        """Returns True if the numbers differ from the last list, or if no list is known."""
        return self._state is None or self._state.numbers != _numbers(machine)

    def take(self, machine: Machine, holders: Iterable[Holder]) -> None:
        """Takes slurmd's new list. Parameter `holders` has the present holders. A holder that no earlier
        call has recorded got its devices by the previous list."""
        before = list[_Before]()
        if self._state is not None:
            known = {each.cgroup for of in self._state.before for each in of.holders}
            present = [each for each in holders if each.cgroup not in known]
            before = [*self._state.before, _Before(numbers=self._state.numbers, holders=present)]
        self._state = _State(numbers=_numbers(machine), before=before)

    def look(
        self, machine: Machine | None, cgroups: Sequence[PodCgroup], entries: Iterable[Entry]
    ) -> None:
        """Forgets ended holders, finds the renumbered devices that the other holders may have, and
        writes the state. Parameter `machine` is None before the first list. Parameter `entries` is the
        access in the kernel. Raises OSError."""
        if self._state is None:
            return
        pods, has = {each.number: each for each in cgroups}, defaultdict[int, set[Number]](set)
        for entry in entries:
            has[entry.cgroup].add(entry.number)
        self._state = _State(numbers=self._state.numbers, before=_living(self._state.before, pods))
        numbers: Numbers = _numbers(machine) if machine else self._state.numbers
        parts, devices, names = machine.numbered if machine else {}, dict[str, str](), set[str]()
        for before in self._state.before:
            moved = renumbered(before.numbers, numbers)
            for holder in before.holders:
                own = has[holder.cgroup] if holder.cgroup in pods else None
                held = {of: was for of, was in moved.items() if _may_have(own, parts.get(of))}
                devices |= held
                if held:
                    names.add(holder.name)
        self.held = frozenset(number for of in devices if of in parts for number in parts[of].own)
        texts = [f"{of} ({', '.join(numbers[of])}) was {devices[of]}" for of in numbers if of in devices]
        self.words = _words(texts, sorted(names))
        self._keep(self._state)

    def _keep(self, state: _State) -> None:
        """Writes the state after a change. If a write fails, the next call tries again."""
        if state == self._kept:
            return
        new = self._file.with_name(f"{self._file.name}.new")
        try:
            new.write_text(state.model_dump_json())
            new.replace(self._file)
        except OSError as error:
            self.problem = str(error)
        else:
            self._kept, self.problem = state, ""


def renumbered(before: Numbers, now: Numbers) -> dict[str, str]:
    """Returns the devices that have another number now. The key is the present number, and the value is
    the earlier number. MIG instances share the file of their GPU, so this file has several numbers. A
    file counts as renumbered only if none of its earlier numbers remains."""
    was, current = _by_file(before), _by_file(now)
    return {
        of: " and ".join(sorted(was[file]))
        for of, files in now.items()
        for file in files
        if file in was and was[file].isdisjoint(current[file])
    }


def pods_with_devices(
    claims: Mapping[str, Claim], cgroups: Iterable[PodCgroup], entries: Iterable[Entry]
) -> Iterator[Holder]:
    """Yields the Pods that have processes and access to devices. Pods without a job are left out,
    because the devices of slurmd's Pod belong to native jobs."""
    having = {entry.cgroup for entry in entries}
    for each in cgroups:
        claim = claims.get(each.uid)
        if each.populated and each.number in having and (claim is None or claim.of_job):
            yield Holder(f"Pod {claim.pod if claim else each.uid}", each.number, each.place)


def _living(before: Iterable[_Before], pods: Mapping[int, PodCgroup]) -> list[_Before]:
    """Returns the holders that still have processes. Raises OSError."""
    alive = (
        _Before(numbers=of.numbers, holders=[each for each in of.holders if _lives(each, pods)])
        for of in before
    )
    return [of for of in alive if of.holders]


def _lives(holder: Holder, pods: Mapping[int, PodCgroup]) -> bool:
    if (pod := pods.get(holder.cgroup)) is not None:
        return pod.populated
    try:
        return holder.place.stat().st_ino == holder.cgroup and has_processes(holder.place)
    except (FileNotFoundError, NotADirectoryError):  # the cgroup was removed
        return False


def _may_have(own: Iterable[Number] | None, part: Part | None) -> bool:
    """Returns True if a holder may have a device. Parameter `own` has the devices of a Pod, and is None
    for a native job. Parameter `part` is None before the first list."""
    return own is None or part is None or not part.own.isdisjoint(own)


def _words(devices: Sequence[str], holders: Sequence[str]) -> str:
    if not holders:
        return ""
    more = f" and {len(holders) - _MOST_NAMED} more" if len(holders) > _MOST_NAMED else ""
    named = ", ".join(holders[:_MOST_NAMED]) + more
    return (
        f"wait until the jobs from before have ended, or end them ({named}). Slurm may give their"
        f" devices to other jobs: {', '.join(devices)}"
    )


def _numbers(machine: Machine) -> dict[str, tuple[str, ...]]:
    return {of: part.device.files for of, part in machine.numbered.items()}


def _by_file(numbers: Numbers) -> Mapping[str, set[str]]:
    """Returns the numbers of each file."""
    found = defaultdict[str, set[str]](set)
    for of, files in numbers.items():
        for file in files:
            found[file].add(of)
    return found


def _read(file: Path) -> _State | None:
    """Returns the state of an earlier agent, or None if no state can be read."""
    try:
        return _State.model_validate_json(file.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        words = "the numbers of devices by an earlier agent cannot be read"
        log.warning(words, file=str(file), error=str(error))
        return None
