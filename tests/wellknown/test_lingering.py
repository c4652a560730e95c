"""Tests of a Node's annotation about lingering containers. A lingering container still runs after the
end of the Pod."""

from __future__ import annotations

import orjson
import pytest

from wellknown.allocation import Allocation
from wellknown.lingering import (
    MAX_NOTES_PER_NODE,
    LingeringNote,
    NotesOnNode,
    lingering_on,
    text_of,
)
from wellknown.names import LINGERING

VALID = {"job": 4711, "pod": "default/chat", "seconds": 35}


def read(text: str | None) -> NotesOnNode:
    return lingering_on({} if text is None else {LINGERING: text})


def test_notes_are_read_back_from_their_text() -> None:
    chat = LingeringNote(4711, "default/chat", 35.0, "0-3", "gpu:h100:2(IDX:0-1)")
    web = LingeringNote(0, "team-a/web.v2", 4.2)
    assert read(text_of([chat, web])) == ((chat, web._replace(seconds=5.0)), "")
    assert chat.slot("n1") == Allocation(4711, "n1", "gpu:h100:2(IDX:0-1)", "0-3")


def test_no_containers_have_no_text() -> None:
    assert text_of(()) is None
    assert read(None) == read("") == ((), "")


@pytest.mark.parametrize(
    ("text", "problem"),
    [("by hand", "not JSON: "), ("{}", "no list of notes"), ("[" * 100_000, "not JSON: ")],
)
def test_invalid_text_names_no_containers(text: str, problem: str) -> None:
    found = read(text)
    assert found.notes == ()
    assert found.problem.startswith(problem)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"pod": None}, "note 2: pod: Input should be a valid string"),
        ({"job": -1}, "note 2: job: Input should be greater than or equal to 0"),
        ({"seconds": 1e9}, "note 2: seconds: Input should be less than or equal to 10000000"),
        ({"cores": "all"}, "note 2: cores: Value error, "),
    ],
)
def test_invalid_note_is_skipped_and_reported(changes: dict[str, object], problem: str) -> None:
    found = read(orjson.dumps([VALID, VALID | changes, VALID | {"job": 4712}]).decode())
    assert [each.job_id for each in found.notes] == [4711, 4712]
    assert found.problem.startswith(problem)


def test_entry_that_is_no_object_is_skipped_and_reported() -> None:
    found = read(orjson.dumps(["by hand", VALID]).decode())
    assert [each.job_id for each in found.notes] == [4711]
    assert found.problem.startswith("note 1: ")


def test_number_of_notes_is_limited_and_more_are_reported() -> None:
    many = [LingeringNote(number, "a/b", 1.0) for number in range(MAX_NOTES_PER_NODE + 1)]
    found = read(text_of(many))
    assert len(found.notes) == MAX_NOTES_PER_NODE
    assert found.problem == f"more than {MAX_NOTES_PER_NODE} notes"
