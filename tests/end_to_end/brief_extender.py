"""The extender with shorter rests: `python -m tests.end_to_end.brief_extender`.

After kube-scheduler has refused every Node, no job is requested for half a minute; after Slurm has
refused a request, for two minutes. The tests are about what follows: here it follows sooner.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Final

import extender.settings
from extender.app import main
from extender.record.config import PlacementConfig

ARGV: Final = (sys.executable, "-m", "tests.end_to_end.brief_extender")

if __name__ == "__main__":
    brief = partial(PlacementConfig, unbindable=(8.0, 1800.0), retry=(4.0, 1800.0))
    extender.settings.PlacementConfig = brief  # type: ignore[assignment, attr-defined]
    main()
