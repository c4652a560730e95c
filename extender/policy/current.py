"""The current policy: a preset, or the content of a file. The file is read again after each change."""

from pathlib import Path
from typing import Literal

import structlog

from extender.policy.file import read
from extender.policy.rules import OPEN, RESTRICTED, Policy
from service.current_file import CurrentFile

log = structlog.get_logger()

Preset = Literal["restricted", "open"]


class CurrentPolicy(CurrentFile[Policy]):
    """The current policy. After each change of the policy, the event `changed` is set, and a new event
    for the next change replaces this event."""

    def __init__(self, file: Path | None, preset: Preset = "restricted") -> None:
        """The preset is in force if `file` is None. Raises WrongFile for a wrong file."""
        super().__init__("policy", file, read, OPEN if preset == "open" else RESTRICTED)

    @property
    def policy(self) -> Policy:
        return self.content

    def announce(self) -> None:
        rules = [rule.name for rule in self.policy.rules]
        log.info("policy", file=str(self.file or ""), preset=self.policy.preset, rules=rules)
        if not (self.policy.open or self.policy.rules):
            log.warning(
                "the policy lets no Pod run: set SLURM_EXTENDER_POLICY_FILE (docs/concepts/policy.md)"
            )
