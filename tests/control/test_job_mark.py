"""From which id the next leader reads jobs: never above one that may be ours and is known to nobody."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from extender.control.job_mark import LATE_S, JobMark
from slurm_client.server import Configuration

BOOT = 1_790_000_000


class Site:
    """A leader, its clock, and the ids of its jobs that are not on their Pods yet."""

    def __init__(self, left: str | None = f"100@{BOOT}", **slurm: Any) -> None:
        self.now = 1000.0
        self.unrecorded: list[int] = []
        self.mark = JobMark(lambda: self.now)
        self.mark.begin(left, replace(Configuration(boot_time=BOOT), **slurm))

    def later(self, seconds: float = LATE_S + 1) -> None:
        self.now += seconds

    @property
    def text(self) -> str | None:
        return self.mark.text(lambda: self.unrecorded)


def test_it_begins_with_what_the_leader_before_has_left() -> None:
    assert Site().text == f"100@{BOOT}"


@pytest.mark.parametrize("left", [None, "", "x", "7", "@", f"@{BOOT}", f"-7@{BOOT}", f"100@{BOOT + 1}"])
def test_what_is_missing_malformed_or_of_another_slurmctld_says_nothing(left: str | None) -> None:
    assert Site(left).mark.first == 0


def test_where_slurm_counts_lower_ids_by_now_it_has_begun_anew() -> None:
    assert Site(next_job_id=99).mark.first == 0
    assert Site(next_job_id=100).mark.first == 100


def test_a_slurm_that_does_not_tell_when_it_started_leaves_no_mark() -> None:
    mark = JobMark(lambda: 0.0)
    mark.begin(f"100@{BOOT}", Configuration())
    assert mark.first == 0
    assert mark.text(list) is None


def test_it_follows_slurms_count_late_enough_for_every_request_to_have_arrived() -> None:
    site = Site()
    site.mark.answered("a", 200)
    assert site.mark.first == 100
    site.later(LATE_S - 1)
    assert site.mark.first == 100
    site.later(2)
    assert site.mark.first == 201


def test_slurms_own_word_counts_where_it_tells_it() -> None:
    site = Site()
    site.mark.configured(Configuration(boot_time=BOOT, next_job_id=500))
    site.later()
    assert site.mark.first == 500


def test_a_request_of_which_nothing_is_known_keeps_it() -> None:
    site = Site()
    site.later(5)
    site.mark.asked("a")
    site.later(5)
    site.mark.answered("b", 200)
    site.later()
    assert site.mark.first == 100
    site.mark.answered("a", None)
    assert site.mark.first == 201


def test_a_job_that_is_not_on_its_pod_keeps_it() -> None:
    site = Site()
    site.mark.answered("a", 200)
    site.later()
    site.unrecorded = [150, 40_000_000]
    assert site.text == f"150@{BOOT}"
    site.unrecorded = [40_000_000]
    assert site.text == f"150@{BOOT}"  # made a moment ago
    site.later(11)
    assert site.text == f"201@{BOOT}"


def test_answers_that_cross_each_other_do_no_harm() -> None:
    site = Site()
    for job_id in (205, 203, 204):
        site.mark.answered("a", job_id)
        site.later(2)
    site.later()
    assert site.mark.first == 206


def test_after_the_last_id_everything_is_read_for_a_while() -> None:
    site = Site(f"33000000@{BOOT}")
    site.later()
    site.mark.answered("a", 1)
    assert site.text == f"0@{BOOT}"
    site.later()
    assert site.mark.first == 2


def test_after_a_restart_everything_is_read_for_a_while() -> None:
    site = Site()
    assert not site.mark.configured(Configuration(boot_time=BOOT, next_job_id=200))
    site.later(2)
    assert site.mark.configured(Configuration(boot_time=BOOT + 60, next_job_id=190))
    assert site.text == f"0@{BOOT + 60}"
    assert not site.mark.configured(Configuration(boot_time=BOOT + 60, next_job_id=191))
    assert not site.mark.configured(Configuration())
    site.later()
    assert site.mark.first == 190


def test_what_is_open_is_told() -> None:
    site = Site()
    site.mark.asked("a")
    assert site.mark.is_open("a")
    assert not site.mark.is_open("b")
    site.mark.answered("a", None)
    assert not site.mark.is_open("a")
