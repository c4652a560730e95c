"""Applies the wanted configuration to slurmctld if the configuration is valid. Otherwise, slurmctld
keeps the last valid configuration.

The steps for a wanted configuration:

    tried in a temporary slurmctld -> compared with the running configuration -> placed -> read by
    slurmctld -> kept

If a step before "placed" fails, nothing has changed. If a later step fails, this program places the kept
files again, which are the last valid configuration.

With two slurmctlds, one instance of this program runs beside each slurmctld. Both instances share
the kept configuration. The slurmctld on standby restarts with the configuration of the serving
slurmctld.
"""

import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from slurm_cluster.configuration import folders
from slurm_cluster.configuration.controller import Controller, NotServing
from slurm_cluster.configuration.folders import File, Files, Kept
from slurm_cluster.configuration.needs import Need
from slurm_cluster.configuration.plan import SLURM_CONF, Configuration, Plan, plan
from slurm_cluster.configuration.slurm_conf import SlurmConf, parse
from slurm_cluster.configuration.trial import Trial
from slurm_cluster.programs import ProgramFailed

_DEFAULT_STATE: Final = "/var/spool"
"""Default of StateSaveLocation in slurm.conf(5)."""


class Verdict(StrEnum):
    """Result for the wanted configuration."""

    CURRENT = "Current"
    APPLIED = "Applied"
    REFUSED = "Refused"
    HELD = "Held"
    """The configuration is valid, but waits until jobs have ended or slurmctld serves."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A verdict with a message."""

    verdict: Verdict
    words: str = ""
    unserved_s: float = 0.0
    """Time in seconds without an answer from slurmctld."""


@dataclass(frozen=True, slots=True)
class Places:
    """Folders and options of the program."""

    wanted: Path
    running: Path
    kept: Path
    keys: tuple[Path, ...] = ()
    state: Path | None = None
    """StateSaveLocation of the running slurmctld. None means the value in slurm.conf."""
    accepted: tuple[str, ...] = ()
    """Regular expressions of errors that a trial may log (`Trial.accepted`)."""
    retry_s: float = 60.0
    """Time until a rejected configuration is tried again."""


class Configurer:
    """Manages the configuration of one slurmctld. All methods except `plan` may change the running
    and kept files."""

    def __init__(
        self, places: Places, controller: Controller, tell: Callable[[Plan], object] = lambda _: None
    ) -> None:
        """`tell` receives each plan before the plan is carried out."""
        self._places = places
        self._controller = controller
        self._tell = tell
        self._kept = Kept(places.kept)
        self._refused: tuple[str, float, Outcome] | None = None
        """The last rejected configuration: its digest, the time, and the outcome."""
        self._read: str | None = None
        """Digest of the files that slurmctld has read. None means that slurmctld has read the files in
        the folder `running`."""

    @property
    def ready(self) -> bool:
        """True if slurmctld can start: a configuration is in place."""
        return (self._places.running / SLURM_CONF).is_file()

    @property
    def has_run(self) -> bool:
        """True if slurmctld has ever accepted a configuration."""
        return self._kept.slurm_conf.is_file()

    def begin(self) -> Outcome:
        """Places a configuration for the start of slurmctld: the last valid configuration, or the wanted
        configuration if the last one is missing or no longer valid. Raises OSError."""
        kept = self._kept.read()
        if kept and not self._problems(kept, {}, checks_slurmd=False):
            self._place_at_start(kept, {})
            return Outcome(Verdict.CURRENT, "slurmctld starts with the last valid configuration")
        wanted = folders.read(self._places.wanted)
        if problems := self._problems(wanted, {}):
            return Outcome(Verdict.REFUSED, "; ".join(problems))
        conf = self._conf(wanted)
        self._place_at_start(wanted, kept)
        if not kept or conf.hosts()[:1] == (_host(conf),):
            self._kept.keep(wanted)
        return Outcome(Verdict.APPLIED, "slurmctld starts with the wanted configuration")

    def plan(self) -> tuple[Plan, list[str]]:
        """Returns the changes and errors of the wanted configuration. Raises OSError,
        ProgramFailed."""
        wanted, kept = folders.read(self._places.wanted), self._kept.read()
        problems = self._problems(wanted, kept)
        if problems or not kept or (wanted == kept and self._has_read(kept)):
            return Plan(()), problems
        return self._plan(kept, wanted, serves=self._controller.serves()), []

    def look(self, now: float, *, waited: bool) -> Outcome:
        """Applies the wanted configuration if it has changed. Tries a rejected configuration again after
        `retry_s`, because for example a missing QOS may exist then. If `waited` is True, applies the
        configuration even if slurmctld does not serve yet. Raises OSError."""
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
        conf = self._conf(folders.read(self._places.running))
        if self._controller.stands_by(conf, _host(conf)):
            return self._follow(kept, conf)
        if wanted == kept and self._has_read(kept):
            return Outcome(Verdict.CURRENT)
        if problems := self._problems(wanted, kept):
            return Outcome(Verdict.REFUSED, "; ".join(problems))
        serves = self._controller.leads(conf, _host(conf))
        if not serves and not waited:
            return Outcome(Verdict.HELD, "slurmctld does not serve yet")
        try:
            planned = self._plan(kept, wanted, serves=serves)
        except ProgramFailed as failed:
            return Outcome(Verdict.HELD, f"jobs and partitions are not yet known: {failed}")
        return self._left(planned) or self._apply(planned, kept, wanted, serves=serves)

    def _follow(self, kept: Files, conf: SlurmConf) -> Outcome:
        """Places `kept`, which is the configuration of the serving slurmctld, and restarts the slurmctld
        on standby. `conf` is the configuration with which the slurmctld on standby runs."""
        if self._has_read(kept):
            return Outcome(Verdict.CURRENT)
        if _host(conf) not in self._conf(kept).hosts():
            return Outcome(Verdict.HELD, "the serving slurmctld does not list this slurmctld yet")
        self._read = ""
        self._place(kept, {})
        try:
            self._controller.restart_standby(conf, _host(conf))
        except (ProgramFailed, NotServing) as failed:
            return Outcome(Verdict.HELD, f"cannot restart slurmctld on standby: {failed}")
        self._read = self._digest(kept)
        words = "slurmctld on standby restarts with the configuration of the serving slurmctld"
        return Outcome(Verdict.APPLIED, words)

    def _left(self, planned: Plan) -> Outcome | None:
        """Returns the reason why a plan is not carried out, or None."""
        if by_hand := planned.by_hand:
            reasons = (f"{each.what}: {each.words}: needs a person: {each.row.why}" for each in by_hand)
            return Outcome(Verdict.REFUSED, "; ".join(reasons))
        if planned.jobs:
            return Outcome(Verdict.HELD, "; ".join(planned.lines()))
        return None

    def _apply(self, planned: Plan, kept: Files, wanted: Files, *, serves: bool) -> Outcome:
        self._tell(planned)
        keys_before = self._placed_keys()
        self._place(wanted, kept)
        try:
            unserved = self._carry_out(planned.need, kept) if serves else self._await_start()
        except (ProgramFailed, NotServing) as failed:
            self._place(kept, wanted, keys_before)
            self._read = None
            return Outcome(Verdict.REFUSED, f"{failed}: the previous configuration is restored")
        self._read = self._digest(wanted)
        self._kept.keep(wanted)
        return Outcome(Verdict.APPLIED, "; ".join(planned.lines()), unserved)

    def _carry_out(self, need: Need, kept: Files) -> float:
        if need < Need.RESTART:
            return self._controller.reconfigure()
        before = self._conf(kept)
        unserved = self._controller.restart(before, _host(before))
        if need >= Need.RESTART_WITHOUT_RECONFIGURE:
            return unserved
        return unserved + self._controller.reconfigure()

    def _await_start(self) -> float:
        self._controller.await_serving()
        return 0.0

    def _has_read(self, files: Files) -> bool:
        if self._read is None:
            return folders.has(self._places.running, {**files, **self._keys()})
        return self._read == self._digest(files)

    def _digest(self, files: Files) -> str:
        return folders.digest({**files, **self._keys()})

    def _keys(self) -> dict[str, File]:
        return folders.read_keys(self._places.keys)

    def _placed_keys(self) -> dict[str, File]:
        placed = {name: self._places.running / name for name in self._keys()}
        return {
            name: File(path.read_bytes(), secret=True) for name, path in placed.items() if path.is_file()
        }

    def _place_at_start(self, files: Files, before: Files) -> None:
        """Places files for the start of slurmctld. If only this program was restarted, slurmctld still
        runs with the files that were placed earlier. Then `_read` becomes "" if `files` differ from
        these files, so that slurmctld must read `files`."""
        has_read = not self.ready or self._has_read(files)
        self._place(files, before)
        self._read = self._digest(files) if has_read else ""

    def _place(self, files: Files, before: Files, keys: Files | None = None) -> None:
        folders.write(self._places.running, {**files, **(self._keys() if keys is None else keys)})
        folders.remove(self._places.running, before.keys() - files.keys())

    def _problems(self, files: Files, kept: Files, *, checks_slurmd: bool = True) -> list[str]:
        if SLURM_CONF not in files:
            return [f"{self._places.wanted} has no {SLURM_CONF}"]
        try:
            conf = self._conf(files)
        except (LookupError, UnicodeDecodeError) as error:
            return [f"{SLURM_CONF}: {error}"]
        accepted = self._places.accepted
        trial = Trial(self._places.running, self._state(conf), accepted, checks_slurmd)
        known = self._conf(kept).settings() if kept else {}
        tres = frozenset(",".join(known.get("accountingstoragetres", ())).lower().split(","))
        return trial.problems({**files, **self._keys()}, conf, tres)

    def _state(self, conf: SlurmConf) -> Path:
        return self._places.state or Path(
            conf.settings().get("statesavelocation", (_DEFAULT_STATE,))[-1]
        )

    def _plan(self, kept: Files, wanted: Files, *, serves: bool) -> Plan:
        before = self._configuration(kept, self._placed_keys())
        after = self._configuration(wanted, self._keys())
        if not serves:
            return plan(before, after, (), {})
        return plan(before, after, self._controller.jobs(), self._controller.partitions())

    def _configuration(self, files: Files, keys: Files) -> Configuration:
        contents = {name: file.content for name, file in {**files, **keys}.items()}
        return Configuration(self._conf(files), contents)

    def _conf(self, files: Mapping[str, File]) -> SlurmConf:
        def included(path: str) -> str:
            prefix = f"{self._places.running}/"
            name = path.removeprefix(prefix).removeprefix("./")
            if name not in files:
                raise LookupError(f"the included file {path} is missing")
            return files[name].content.decode()

        return parse(files[SLURM_CONF].content.decode(), included)


def _host(conf: SlurmConf) -> str:
    """Returns the name that this host has in slurm.conf."""
    name = socket.gethostname()
    return name if name in conf.hosts() else name.partition(".")[0]
