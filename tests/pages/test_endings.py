"""Compares docs/concepts/endings.md with the code, and with the tests of each ending."""

from __future__ import annotations

import re

import pytest

from deploy.local.layout import CHECKOUT
from extender.explain.cause import Kind
from extender.explain.sentences import SENTENCES
from extender.record.ends import ENDS, OTHER_END
from tests.end_to_end.test_books import WITHOUT_REFUSALS
from tests.end_to_end.test_endings import JOB_ENDS, POD_ENDS, WAITS_FOR, JobEnds, PodEnds

PAGE = (CHECKOUT / "docs" / "concepts" / "endings.md").read_text()


def test_page_has_exactly_the_reasons_of_evictions() -> None:
    evicting = {kind.reason for kind in ENDS.values()}
    told = set(re.findall(r"`(Slurm[A-Z]\w+)`", PAGE)) - {"SlurmUser"}
    started_again = {"SlurmNodeChanged", "SlurmDevicesChanged"}
    assert told == evicting | started_again | {OTHER_END.reason}


@pytest.mark.parametrize("how", POD_ENDS, ids=lambda how: how.name)
def test_page_shows_the_message_of_each_cancelled_job(how: PodEnds) -> None:
    assert f"`{how.words}`" in PAGE


@pytest.mark.parametrize("how", JOB_ENDS, ids=str)
def test_page_shows_the_message_of_each_evicted_pod(how: JobEnds) -> None:
    (row,) = (line for line in PAGE.splitlines() if f"`{how.reason}`" in line and how.words in line)
    assert "evicted" in row


def test_page_shows_the_other_messages() -> None:
    for words in (SENTENCES[Kind.POD_BOUND_ELSEWHERE], SENTENCES[Kind.JOB_NOT_NEEDED], *WAITS_FOR):
        assert f"`{words}`" in PAGE


def test_page_shows_the_command_without_refused_requests() -> None:
    assert f"    {WITHOUT_REFUSALS}\n" in PAGE
