"""Tests of the warning to the administrator before native jobs get the ids of placeholders."""

from typing import Any, cast

import pytest

from extender.execution.job_id_check import PART, JobIdCheck
from service.health import Health
from slurm_client.protocol import Slurm
from slurm_client.server import Configuration
from wellknown.job_key import JobIdRange, encroaching

IDS = JobIdRange()
SLURMS_DEFAULT = 67_043_328
COMES_NEAR = Configuration(next_job_id=IDS.first - 9, max_job_id=SLURMS_DEFAULT)


FAR = [(latest, SLURMS_DEFAULT) for latest in (1, 30_198_987, IDS.end, None)]
BEGIN_BEFORE_THE_RANGE = [(IDS.first - 2000, most) for most in (IDS.first, IDS.first - 1000)]


@pytest.mark.parametrize(("latest", "max_job_id"), [*FAR, *BEGIN_BEFORE_THE_RANGE])
def test_ids_that_do_not_reach_the_range_are_not_reported(latest: int | None, max_job_id: int) -> None:
    assert encroaching(latest, max_job_id, IDS) is None


@pytest.mark.parametrize("max_job_id", [SLURMS_DEFAULT, IDS.first + 1, None])
def test_ids_near_the_range_are_reported_with_the_fix(max_job_id: int | None) -> None:
    words = encroaching(30_198_988, max_job_id, IDS)
    assert words is not None
    assert "comes near the placeholders' range (33554432 to 67043327): it is at 30198988" in words
    assert "MaxJobId=33554432" in words
    assert encroaching(IDS.first - 1, max_job_id, IDS) is not None


def test_ids_within_the_range_are_reported() -> None:
    for latest in (IDS.first, IDS.end - 1):
        assert "has come into" in str(encroaching(latest, SLURMS_DEFAULT, IDS))


def test_ids_of_placeholders_of_another_cluster_are_not_reported() -> None:
    """slurmrestd reports no MaxJobId. The setting is the lowest first id of all clusters."""
    ours = JobIdRange(50_000_000)
    assert encroaching(ours.first - 1, IDS.first, ours) is None
    assert encroaching(ours.first - 1, None, ours) is not None


class Checked:
    """Runs the check on a Slurm with the given configuration."""

    def __init__(self, told: Configuration, max_job_id: int | None = None) -> None:
        self.told = told
        self._health = Health()
        self.check = JobIdCheck(cast(Slurm, self), self._health, IDS, max_job_id)

    async def configuration(self) -> Configuration:
        return self.told

    async def problem(self) -> Any:
        await self.check.look()
        problems = self._health.problems()
        return problems.get(PART)


async def test_next_job_id_is_a_problem_until_slurm_starts_again_at_1() -> None:
    near = Checked(COMES_NEAR)
    assert str(IDS.first - 9) in await near.problem()
    near.told = Configuration(next_job_id=1, max_job_id=IDS.first)
    assert await near.problem() is None


async def test_noted_ids_are_checked_if_slurm_reports_no_next_id() -> None:
    untold = Checked(Configuration())
    assert await untold.problem() is None
    untold.check.note(IDS.first - 9)
    untold.check.note(None)
    untold.check.note(4711)
    assert str(IDS.first - 9) in await untold.problem()


async def test_max_job_id_setting_counts_if_slurm_does_not_report_it() -> None:
    untold = Checked(Configuration(), max_job_id=IDS.first)
    untold.check.note(IDS.first - 9)
    assert await untold.problem() is None
    told = Checked(COMES_NEAR, max_job_id=IDS.first)
    assert await told.problem() is not None
