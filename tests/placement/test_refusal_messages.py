"""Tests of the messages about Slurm's refusals: the cause first, the numbers last, and no Python
values."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from extender.execution.failures import failure_of
from extender.explain.cause import Cause
from extender.explain.message import text
from extender.explain.sentences import sentence
from extender.placement.transitions.asked import refused
from extender.placement.transitions.attempts import cause_of
from extender.placement.transitions.rights import NUMBERS, lacking
from extender.record.events import Remedy
from slurm_client.errors import CAUSES
from slurm_client.in_memory import rejections
from slurm_client.model import Sharing
from slurm_client.rights import Association, UserRights
from tests.placement.ledger_world import REQUEST
from tests.placement.test_asked import AT

ASKED: dict[str, Any] = {
    "account": "labb",
    "qos": "fast",
    "reservation": "theirs",
    "partition": "main",
    "constraints": "h200",
    "prefer": "h200",
    "required_nodes": ("n8", "n9"),
    "time_limit_minutes": 90,
    "user_id": 2001,
    "shared": Sharing.NONE,
    "cpus": 64,
    "gres": (("gpu:h100", 8),),
}
ALICE = UserRights(
    "alice",
    associations=(Association("lab", ("normal", "long"), default=True), Association("ml", ("normal",))),
    reservations=("hers",),
)
RIGHTS = {
    "known": ALICE,
    "unknown": UserRights(unknown=True),
    "nameless": UserRights(),
    "not told": None,
}
PYTHON = re.compile(r"None|<|\{|\(\)|\('|\['|Sharing\.|frozenset|Error\(")


def said(cause: Cause | None) -> str:
    return sentence(cause) if cause else ""


@pytest.mark.parametrize("number", sorted(CAUSES))
@pytest.mark.parametrize("asked", [ASKED, {}], ids=["much", "little"])
@pytest.mark.parametrize("rights", RIGHTS.values(), ids=RIGHTS.keys())
def test_message_has_no_python_values_and_ends_with_the_error_numbers(
    number: int, asked: dict[str, Any], rights: UserRights | None
) -> None:
    failure = failure_of(rejections.numbered(number))
    request = replace(REQUEST, job=replace(REQUEST.job, **asked))
    at = replace(AT, rights=rights)
    why = refused(failure, request, at)
    cause = why.shown() if failure.remedy is Remedy.CHANGE else cause_of(failure)
    assert not PYTHON.search(text(cause))
    assert text(cause, "; Slurm is asked again at 12:00 UTC").endswith(f" ({failure.codes})")
    assert "Slurm error" not in sentence(cause)


@pytest.mark.parametrize(
    ("number", "asked", "words"),
    [
        (2045, {"account": "labb"}, 'alice has no account "labb"; accounts of alice: lab, ml'),
        (
            2045,
            {"account": "lab"},
            'Slurm refuses account "lab" of alice in partition main; accounts of alice: lab, ml',
        ),
        (
            2130,
            {},
            "Slurm refuses the default account of alice in partition main; accounts of alice: lab, ml",
        ),
        (2066, {"qos": "fast"}, 'alice has no QOS "fast"; QOS of alice in account lab: normal, long'),
        (
            2066,
            {"qos": "long", "account": "ml"},
            'alice has no QOS "long"; QOS of alice in account ml: normal',
        ),
        (2066, {"qos": "long", "account": "x"}, ""),
        (
            2052,
            {"reservation": "theirs"},
            'alice may not use reservation "theirs"; reservations of alice: hers',
        ),
        (
            2053,
            {"reservation": "theirs"},
            'Slurm has no reservation "theirs"; reservations of alice: hers',
        ),
    ],
)
def test_message_lists_rights_of_a_refused_user(number: int, asked: dict[str, Any], words: str) -> None:
    assert said(lacking(number, replace(REQUEST.job, **asked), "main", ALICE)) == words


@pytest.mark.parametrize("number", sorted(NUMBERS))
def test_message_names_no_rights_that_slurm_does_not_report(number: int) -> None:
    job = replace(REQUEST.job, **ASKED)
    assert lacking(number, job, "main", UserRights()) is None
    told = said(lacking(number, job, "main", UserRights("alice")))
    assert "accounts of" not in told
    assert "QOS of" not in told


def test_message_states_that_the_user_has_no_rights() -> None:
    job = replace(REQUEST.job, **ASKED)
    found = lacking(2045, job, "main", UserRights("alice", associations=()))
    assert said(found) == "alice has no account"
    words = 'alice may not use reservation "theirs"; alice has no reservation'
    assert said(lacking(2052, job, "main", UserRights("alice"))) == words
