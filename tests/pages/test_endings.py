"""docs/concepts/endings.md, the code that it tells of, and the tests that try it."""

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


def test_every_reason_that_evicts_a_pod_is_on_the_page_and_no_other() -> None:
    evicting = {kind.reason for kind in ENDS.values()}
    told = set(re.findall(r"`(Slurm[A-Z]\w+)`", PAGE)) - {"SlurmUser"}
    started_again = {"SlurmNodeChanged", "SlurmDevicesChanged"}
    assert told == evicting | started_again | {OTHER_END.reason}


@pytest.mark.parametrize("how", POD_ENDS, ids=lambda how: how.name)
def test_the_page_has_the_words_that_a_cancelled_job_gets(how: PodEnds) -> None:
    assert f"`{how.words}`" in PAGE


@pytest.mark.parametrize("how", JOB_ENDS, ids=str)
def test_the_page_has_the_words_that_an_evicted_pod_gets(how: JobEnds) -> None:
    (row,) = (line for line in PAGE.splitlines() if f"`{how.reason}`" in line and how.words in line)
    assert "evicted" in row


def test_the_page_has_what_else_is_said() -> None:
    for words in (SENTENCES[Kind.POD_BOUND_ELSEWHERE], SENTENCES[Kind.JOB_NOT_NEEDED], *WAITS_FOR):
        assert f"`{words}`" in PAGE


def test_the_page_has_the_command_that_leaves_refused_requests_out() -> None:
    assert f"    {WITHOUT_REFUSALS}\n" in PAGE
