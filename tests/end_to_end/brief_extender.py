"""The extender with shorter waiting times: `python -m tests.end_to_end.brief_extender`.

If kube-scheduler has refused every Node, the extender asks for no job in the next half minute. If Slurm
has refused a request, the extender waits for two minutes. If a kubelet rejects Pods, the extender closes
the Node for a minute. With the shorter times, tests of the next step wait less.
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
