"""The extender with shorter waiting times: `python -m tests.end_to_end.brief_extender`.

The extender's default waiting times are: half a minute after kube-scheduler has rejected every Node, two
minutes after Slurm has rejected a request, one minute after a kubelet has rejected Pods. This program
shortens these times for tests of the step that follows.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Final

import extender.settings
from extender.app import main
from extender.record.config import PlacementConfig
from wellknown.pauses import Pauses

ARGV: Final = (sys.executable, "-m", "tests.end_to_end.brief_extender")

if __name__ == "__main__":
    brief = partial(
        PlacementConfig,
        unbindable=Pauses(8.0, 1800.0),
        retry=(4.0, 1800.0),
        closed_by_kubelet=(8.0, 1800.0),
    )
    extender.settings.PlacementConfig = brief  # type: ignore[assignment, attr-defined]
    main()
