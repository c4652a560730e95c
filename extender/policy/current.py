"""The current policy: a preset, or the content of a file that is read again whenever it changes.

A file that becomes wrong changes nothing: the last good policy stays in force, and the log, /readyz and
a metric say so until the file is corrected.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import structlog

from extender.policy.file import WrongPolicy, read
from extender.policy.rules import OPEN, RESTRICTED, Policy
from service.health import Health
from service.periodic import periodically
from service.watched_file import Stamp, stamp

log = structlog.get_logger()

_LOOK_S = 1.0

Preset = Literal["restricted", "open"]


class CurrentPolicy:
    """Keeps the current policy. `changed` is set, and replaced by another event, when the policy
    changes."""

    def __init__(self, file: Path | None, preset: Preset = "restricted") -> None:
        """The preset is in force where there is no file. Raises WrongPolicy where the file is wrong."""
        self.policy: Policy = OPEN if preset == "open" else RESTRICTED
        self.changed = asyncio.Event()
        self.trouble: str | None = None
        """The problem with the current file; None where its policy is in force."""
        self._file = file
        self._seen: Stamp | None = None
        self._read: Stamp | None = None
        self._wrong: str | None = None
        if file is not None:
            self._read = self._seen = _stamp_of(file)
            self.policy = read(file)

    async def run(self, health: Health, tell: Callable[[bool], object]) -> None:
        """Looks at the file for ever, if there is one; `tell` is called each time with whether it is
        good."""
        self._announce()
        file = self._file
        if file is None:
            return

        def look() -> None:
            self.look(file)
            why = self.trouble and f"the last good policy counts: {self.trouble}"
            health.says("policy", why, alarm=True)
            tell(self.trouble is None)

        await periodically(look, _LOOK_S, pauses_first=True)

    def look(self, file: Path) -> None:
        """Reads a changed file once it has stayed the same between two looks: half of a file may be a
        policy too."""
        now = _stamp_of(file)
        if now is not None and now != self._read and now == self._seen:
            self._read = now
            self._take(file)
        self._seen = now
        self.trouble = self._wrong if now is not None else f"{file} is not there any more"

    def _take(self, file: Path) -> None:
        try:
            policy = read(file)
        except WrongPolicy as wrong:
            self._wrong = str(wrong)
            return
        self._wrong = None
        if policy != self.policy:
            self.policy = policy
            self._announce()
            changed, self.changed = self.changed, asyncio.Event()
            changed.set()

    def _announce(self) -> None:
        rules = [rule.name for rule in self.policy.rules]
        log.info("policy", file=str(self._file or ""), preset=self.policy.preset, rules=rules)
        if not (self.policy.open or self.policy.rules):
            log.warning("the policy lets no Pod run: set SLURM_EXTENDER_POLICY_FILE (docs/policy.md)")


def _stamp_of(file: Path) -> Stamp | None:
    """Returns the stamp of the file behind links: a ConfigMap changes by a link to another folder."""
    try:
        return stamp(file)
    except OSError:
        return None
