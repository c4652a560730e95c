"""Brings a wanted configuration to slurmctld, if it is right; else what slurmctld has stays.

    tried in a throw-away slurmctld -> compared with what runs -> placed -> read by slurmctld -> kept

A step that fails ends it: before the files are placed nothing has changed, and after that what was kept
is placed again.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from slurm_cluster.configuration import folders
from slurm_cluster.configuration.controller import Controller, NotServing
from slurm_cluster.configuration.folders import File, Files, Kept
from slurm_cluster.configuration.needs import Need
from slurm_cluster.configuration.plan import SLURM_CONF, Configuration, Job, Plan, plan
from slurm_cluster.configuration.slurm_conf import SlurmConf, parse
from slurm_cluster.configuration.trial import Trial
from slurm_cluster.programs import ProgramFailed

_DEFAULT_STATE: Final = "/var/spool"
"""slurm.conf(5) StateSaveLocation."""


class Verdict(StrEnum):
    """What became of the wanted configuration."""

    CURRENT = "Current"
    APPLIED = "Applied"
    REFUSED = "Refused"
    HELD = "Held"
    """It is right, and waits: until jobs have ended, or slurmctld serves."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A verdict, and the words for people."""

    verdict: Verdict
    words: str = ""
    unserved_s: float = 0.0
    """For how long nobody answered."""


@dataclass(frozen=True, slots=True)
class Places:
    """The folders."""

    wanted: Path
    running: Path
    kept: Path
    keys: tuple[Path, ...] = ()
    state: Path | None = None
    """The running slurmctld's StateSaveLocation; None: as slurm.conf says."""
    accepted: tuple[str, ...] = ()
    """Errors that a trial may log (`Trial.accepted`)."""
    retry_s: float = 60.0
    """After this time a configuration that was refused is tried again."""


class Configurer:
    """Looks after one slurmctld. Every method but `plan` may change what it reads."""

    def __init__(
        self, places: Places, controller: Controller, tell: Callable[[Plan], object] = lambda _: None
    ) -> None:
        """`tell` is called with each plan before it is carried out."""
        self._places = places
        self._controller = controller
        self._tell = tell
        self._kept = Kept(places.kept)
        self._refused: tuple[str, float, Outcome] | None = None
        """What was refused last: its digest, when, and the outcome."""

    @property
    def ready(self) -> bool:
        """Whether slurmctld can start: there is a configuration for it."""
        return (self._places.running / SLURM_CONF).is_file()

    @property
    def has_run(self) -> bool:
        """Whether slurmctld ever took a configuration."""
        return self._kept.slurm_conf.is_file()

    def begin(self) -> Outcome:
        """Places a configuration for slurmctld to start with: the last good one, or else the wanted
        one. Raises OSError."""
        kept = self._kept.read()
        if kept and not self._problems(kept, {}):
            self._place(kept, {})
            return Outcome(Verdict.CURRENT, "slurmctld starts with the configuration that was kept")
        wanted = folders.read(self._places.wanted)
        if problems := self._problems(wanted, {}):
            return Outcome(Verdict.REFUSED, _told(problems))
        self._place(wanted, kept)
        self._kept.keep(wanted)
        return Outcome(Verdict.APPLIED, "slurmctld starts with the wanted configuration")

    def plan(self) -> tuple[Plan, list[str]]:
        """Returns what the wanted configuration would change, and what is wrong with it. Changes
        nothing. Raises OSError, ProgramFailed."""
        wanted, kept = folders.read(self._places.wanted), self._kept.read()
        problems = self._problems(wanted, kept)
        if problems or not kept:
            return Plan(()), problems
        jobs = self._controller.jobs() if self._controller.serves() else []
        return self._plan(kept, wanted, jobs), []

    def look(self, now: float, *, waited: bool) -> Outcome:
        """Applies the wanted configuration where it is another one. One that was refused is tried again
        `retry_s` later: what it lacked may be there by now (a QOS). `waited`: a slurmctld that does not
        serve is not waited for any more: perhaps the wanted configuration mends that. Raises OSError."""
        wanted, kept = folders.read(self._places.wanted), self._kept.read()
        which = folders.digest({**wanted, **self._keys()})
        if self._refused is not None:
            digest, since, outcome = self._refused
            if digest == which and now < since + self._places.retry_s:
                return outcome
        outcome = self._look(wanted, kept, waited=waited)
        refused = outcome.verdict is Verdict.REFUSED
        self._refused = (which, now, outcome) if refused else None
        return outcome

    def _look(self, wanted: Files, kept: Files, *, waited: bool) -> Outcome:
        if not kept or not self.ready:
            return self.begin()
        if self._is_current(wanted, kept):
            return Outcome(Verdict.CURRENT)
        if problems := self._problems(wanted, kept):
            return Outcome(Verdict.REFUSED, _told(problems))
        serves = self._controller.serves()
        if not serves and not waited:
            return Outcome(Verdict.HELD, "slurmctld does not serve yet")
        try:
            planned = self._plan(kept, wanted, self._controller.jobs() if serves else [])
        except ProgramFailed as failed:
            return Outcome(Verdict.HELD, f"the jobs are not known: {failed}")
        return self._left(planned) or self._apply(planned, kept, wanted, serves=serves)

    def _left(self, planned: Plan) -> Outcome | None:
        """Returns why a plan is not carried out; None where it is."""
        if by_hand := planned.by_hand:
            told = (f"{each.what}: {each.words} is left to a person: {each.row.why}" for each in by_hand)
            return Outcome(Verdict.REFUSED, "; ".join(told))
        if planned.jobs:
            return Outcome(Verdict.HELD, "; ".join(planned.lines()))
        return None

    def _apply(self, planned: Plan, kept: Files, wanted: Files, *, serves: bool) -> Outcome:
        self._tell(planned)
        keys_before = self._placed_keys()
        self._place(wanted, kept)
        try:
            unserved = self._carry_out(planned.need) if serves else self._await_start()
        except (ProgramFailed, NotServing) as failed:
            self._place(kept, wanted, keys_before)
            return Outcome(Verdict.REFUSED, f"{failed}: the configuration before is placed again")
        self._kept.keep(wanted)
        return Outcome(Verdict.APPLIED, "; ".join(planned.lines()), unserved)

    def _carry_out(self, need: Need) -> float:
        if need < Need.RESTART:
            return self._controller.reconfigure()
        return self._controller.restart(self._kept.slurm_conf) + self._controller.reconfigure()

    def _await_start(self) -> float:
        self._controller.await_serving()
        return 0.0

    def _is_current(self, wanted: Files, kept: Files) -> bool:
        return wanted == kept and self._placed_keys() == self._keys()

    def _keys(self) -> dict[str, File]:
        return folders.read_keys(self._places.keys)

    def _placed_keys(self) -> dict[str, File]:
        placed = {name: self._places.running / name for name in self._keys()}
        return {
            name: File(path.read_bytes(), secret=True) for name, path in placed.items() if path.is_file()
        }

    def _place(self, files: Files, before: Files, keys: Files | None = None) -> None:
        folders.write(self._places.running, {**files, **(self._keys() if keys is None else keys)})
        folders.remove(self._places.running, before.keys() - files.keys())

    def _problems(self, files: Files, kept: Files) -> list[str]:
        if SLURM_CONF not in files:
            return [f"there is no {SLURM_CONF} in {self._places.wanted}"]
        try:
            conf = self._conf(files)
        except (LookupError, UnicodeDecodeError) as error:
            return [f"{SLURM_CONF}: {error}"]
        state = self._places.state or Path(
            conf.settings().get("statesavelocation", (_DEFAULT_STATE,))[-1]
        )
        trial = Trial(self._places.running, state, self._places.accepted)
        known = self._conf(kept).settings() if kept else {}
        tres = frozenset(",".join(known.get("accountingstoragetres", ())).lower().split(","))
        return trial.problems({**files, **self._keys()}, conf, tres)

    def _plan(self, kept: Files, wanted: Files, jobs: list[Job]) -> Plan:
        before = self._configuration(kept, self._placed_keys())
        return plan(before, self._configuration(wanted, self._keys()), jobs)

    def _configuration(self, files: Files, keys: Files) -> Configuration:
        contents = {name: file.content for name, file in {**files, **keys}.items()}
        return Configuration(self._conf(files), contents)

    def _conf(self, files: Mapping[str, File]) -> SlurmConf:
        def included(path: str) -> str:
            prefix = f"{self._places.running}/"
            name = path.removeprefix(prefix).removeprefix("./")
            if name not in files:
                raise LookupError(f"{path} is included, and is not there")
            return files[name].content.decode()

        return parse(files[SLURM_CONF].content.decode(), included)


def _told(problems: list[str]) -> str:
    return "; ".join(problems)
