"""The annotation of a Node about containers that may outlive their Pods (`LINGERING`)."""

import re
from collections.abc import Iterable, Mapping
from math import ceil
from typing import NamedTuple

from wellknown.names import LINGERING

_FORM = re.compile(r"job (\d{1,10}), Pod ([^\s:;,]+): (\d{1,4}) s", re.ASCII)
_LONGEST = 65_536
"""Limit in characters. All annotations of a Node have 256 KiB."""


class LingeringContainers(NamedTuple):
    """Containers of a Pod that was deleted by force."""

    job_id: int
    pod: str
    """namespace/name."""
    seconds: float
    """The longest time until the end of the containers."""


def lingering_on(annotations: Mapping[str, str]) -> tuple[LingeringContainers, ...]:
    """Returns the containers that the annotations of a Node name."""
    found = _FORM.finditer(annotations.get(LINGERING, "")[:_LONGEST])
    return tuple(LingeringContainers(int(one[1]), one[2], float(one[3])) for one in found)


def text_of(containers: Iterable[LingeringContainers]) -> str | None:
    """Returns the annotation's text; None without containers. A text that would be too long has the
    containers with the longest time."""
    text = ""
    for each in sorted(containers, key=lambda each: -each.seconds):
        more = f"job {each.job_id}, Pod {each.pod}: {ceil(each.seconds)} s"
        if len(text) + len(more) > _LONGEST:
            break
        text += f"; {more}" if text else more
    return text or None
