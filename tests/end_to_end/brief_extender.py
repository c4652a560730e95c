"""The extender with shorter rests: `python -m tests.end_to_end.brief_extender`.

Once kube-scheduler has refused every Node, no job is asked for in the next half minute. What is tested
is what comes after that: here it comes sooner.
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
    brief = partial(PlacementConfig, unbindable=(8.0, 1800.0))
    extender.settings.PlacementConfig = brief  # type: ignore[assignment, attr-defined]
    main()
