"""Which of Slurm's pending reasons are an owner's own."""

from __future__ import annotations

import pytest

from extender.placement.pending_reasons import waits_for_its_owner
from slurm_client.in_memory.accounting import REASONS


@pytest.mark.parametrize(
    "reason",
    [
        *sorted(REASONS),
        "AssocGrpCPURunMinutesLimit",
        "AssociationJobLimit",
        "QOSGrpGRES",
        "QOSUsageThreshold",
        "MaxJobsPerAccount",
        "JobHeldUser",
        "JobHeldAdmin",
        "Reservation",
        "BeginTime",
        "Dependency",
    ],
)
def test_a_job_that_could_not_start_on_an_idle_cluster_waits_for_its_owner(reason: str) -> None:
    assert waits_for_its_owner(reason)


@pytest.mark.parametrize(
    "reason",
    [
        "Priority",
        "Resources",
        "Licenses",
        "ReqNodeNotAvail",
        "PartitionDown",
        "None",
        "",
        "NewInThisSlurm",
    ],
)
def test_a_job_that_waits_for_what_others_have_too_competes(reason: str) -> None:
    assert not waits_for_its_owner(reason)
