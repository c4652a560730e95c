"""Objects that Helm makes of the chart slurm-extender. Helm renders the same values once."""

from __future__ import annotations

import json
from functools import cache

from deploy.local.chart import Rendered, Values
from deploy.local.programs.helm_binary import helm
from deploy.local.progress import silent
from tests.chart_matrix import with_needed


def rendered(values: Values) -> Rendered:
    """Returns objects that tests share and do not change. Raises ClusterError with Helm's words."""
    return _rendered(json.dumps(with_needed(values)))


@cache
def _rendered(values: str) -> Rendered:
    return Rendered.of(helm(silent), json.loads(values))
