"""The annotation of a Node about containers that may outlive their Pods (`LINGERING`)."""

from collections.abc import Iterable, Mapping
from math import ceil
from typing import NamedTuple

import orjson
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from wellknown.allocation import Allocation
from wellknown.names import LINGERING

MOST = 128
"""Number of notes on a Node. All annotations of a Node have 256 KiB."""


class LingeringContainers(NamedTuple):
    """Containers of a Pod that was deleted by force."""

    job_id: int
    pod: str
    """namespace/name."""
    seconds: float
    """The longest time until the end of the containers."""
    cores: str = ""
    """The cores of the containers, as in `Allocation`."""
    gres: str = ""

    def slot(self, node: str) -> Allocation:
        """Returns the cores and devices of the containers on a Node."""
        return Allocation(self.job_id, node, self.gres, self.cores)


class _Entry(BaseModel):
    job: int = Field(ge=0)
    pod: str
    seconds: float = Field(ge=0, le=10_000_000)
    cores: str = ""
    gres: str = ""


_ENTRIES = TypeAdapter(list[_Entry])


def lingering_on(annotations: Mapping[str, str]) -> tuple[LingeringContainers, ...]:
    """Returns the containers that the annotations of a Node name; none for an invalid text."""
    text = annotations.get(LINGERING)
    if not text:  # as nearly always
        return ()
    try:
        entries = _ENTRIES.validate_json(text)
    except ValidationError:
        return ()
    return tuple(LingeringContainers(*vars(each).values()) for each in entries[:MOST])


def text_of(containers: Iterable[LingeringContainers]) -> str | None:
    """Returns the annotation's text; None without containers."""
    entries = [
        {
            "job": each.job_id,
            "pod": each.pod,
            "seconds": ceil(each.seconds),
            "cores": each.cores,
            "gres": each.gres,
        }
        for each in containers
    ]
    return orjson.dumps(entries).decode() if entries else None
