"""Sends objects that Helm has rendered to a real kube-apiserver, as a dry run. kube-apiserver validates
each field and stores nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from deploy.local.cluster import Cluster
from deploy.local.errors import ClusterError

_DRY_RUN: Final = (
    *("apply", "--server-side", "--force-conflicts", "--field-manager=helm"),
    *("--dry-run=server", "--validate=strict", "-f", "-"),
)
_SEPARATOR: Final = re.compile(r"^---\n", re.MULTILINE)


def rejections(cluster: Cluster, texts: Iterable[str]) -> tuple[int, list[str]]:
    """Sends each different object once. Returns the number of sent objects, and the messages with which
    kube-apiserver rejects objects."""
    objects = dict.fromkeys(each for text in texts for each in _SEPARATOR.split(text) if each.strip())
    try:
        cluster.kubectl(*_DRY_RUN, stdin="---\n".join(objects))
    except ClusterError as error:
        return len(objects), str(error).splitlines() or [repr(error)]
    return len(objects), []
