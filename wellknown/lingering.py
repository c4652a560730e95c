"""The annotation of a Node with notes about containers that may outlive their Pods (`LINGERING`)."""

from collections.abc import Iterable, Mapping
from math import ceil
from typing import Annotated, Any, NamedTuple

import orjson
from pydantic import AfterValidator, BaseModel, Field, ValidationError

from wellknown import number_list
from wellknown.allocation import Allocation
from wellknown.names import LINGERING

MAX_NOTES_PER_NODE = 128
"""Limit on the number of notes on a Node, because all annotations of a Node together have at most 256
KiB."""


class LingeringNote(NamedTuple):
    """A note about the containers of a Pod that was deleted by force."""

    job_id: int
    """The Pod's job."""
    pod: str
    """namespace/name."""
    seconds: float
    """Upper bound of the time until the containers have ended."""
    cores: str = ""
    """The cores of the containers, as in `Allocation`."""
    gres: str = ""
    """The devices of the containers, as in `Allocation`."""

    def slot(self, node: str) -> Allocation:
        """Returns the cores and devices of the containers on a Node."""
        return Allocation(self.job_id, node, self.gres, self.cores)


class NotesOnNode(NamedTuple):
    """The notes in the annotation of a Node."""

    notes: tuple[LingeringNote, ...] = ()
    problem: str = ""
    """Problem of the annotation; empty for a valid annotation."""


NO_NOTES = NotesOnNode()


def _checked(cores: str) -> str:
    number_list.expand(cores)
    return cores


class _Entry(BaseModel):
    job: int = Field(ge=0)
    pod: str
    seconds: float = Field(ge=0, le=10_000_000)
    cores: Annotated[str, AfterValidator(_checked)] = ""
    gres: str = ""

    @property
    def note(self) -> LingeringNote:
        return LingeringNote(
            job_id=self.job, pod=self.pod, seconds=self.seconds, cores=self.cores, gres=self.gres
        )


def lingering_on(annotations: Mapping[str, str]) -> NotesOnNode:
    """Returns the notes in the annotations of a Node, without invalid notes."""
    text = annotations.get(LINGERING)
    if not text:  # as nearly always
        return NO_NOTES
    try:
        entries: Any = orjson.loads(text)
    except ValueError as error:
        return NotesOnNode(problem=f"not JSON: {error}")
    if not isinstance(entries, list):
        return NotesOnNode(problem="no list of notes")
    notes, problems = list[LingeringNote](), list[str]()
    for number, entry in enumerate(entries[:MAX_NOTES_PER_NODE], 1):
        try:
            notes.append(_Entry.model_validate(entry).note)
        except ValidationError as error:
            wrong = error.errors(include_url=False, include_context=False, include_input=False)[0]
            problems.append(": ".join([f"note {number}", *map(str, wrong["loc"]), wrong["msg"]]))
    if len(entries) > MAX_NOTES_PER_NODE:
        problems.append(f"more than {MAX_NOTES_PER_NODE} notes")
    return NotesOnNode(tuple(notes), "; ".join(problems[:3]))


def text_of(notes: Iterable[LingeringNote]) -> str | None:
    """Returns the annotation's text; None without notes."""
    entries = [
        {
            "job": each.job_id,
            "pod": each.pod,
            "seconds": ceil(each.seconds),
            "cores": each.cores,
            "gres": each.gres,
        }
        for each in notes
    ]
    return orjson.dumps(entries).decode() if entries else None
