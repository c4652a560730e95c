"""The kubelet's question for preferred devices."""

from collections.abc import Collection
from typing import NamedTuple


class Asked(NamedTuple):
    """The kubelet's question about a container, by the kubelet's names of devices."""

    available: Collection[str]
    must_include: Collection[str]
    size: int
