"""Tests of the table of Slurm's pending reasons: each reason has a sentence, and some reasons concern
only the job's owner."""

from __future__ import annotations

import pytest

from extender.explain.pending_reasons import PENDING_REASONS, explained, waits_for_its_owner
from slurm_client.in_memory.accounting import REASONS
from tests import words


@pytest.mark.parametrize(
    "reason",
    [
        *sorted(REASONS),
        "AssocGrpCPURunMinutesLimit",
        "AssociationJobLimit",
        "QOSGrpGRES",
        "QOSUsageThreshold",
        "MaxJobsPerAccount",
        "MaxGRESRunMinsPerUser",
        "AssocNewInThisSlurm",
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
def test_job_that_waits_for_shared_resources_competes(reason: str) -> None:
    assert not waits_for_its_owner(reason)


@pytest.mark.parametrize("release", words.REASONS)
def test_every_reason_of_slurm_has_a_sentence(release: str) -> None:
    told = {row.name for row in PENDING_REASONS}
    assert not set(words.REASONS[release]) - told


def test_each_reason_is_a_slurm_reason_with_one_sentence() -> None:
    names = [row.name for row in PENDING_REASONS]
    assert len(names) == len(set(names))
    assert set(names) == set().union(*words.REASONS.values())


def test_sentences_fit_into_a_longer_sentence() -> None:
    for row in PENDING_REASONS:
        assert 0 < len(row.sentence) <= 120, row
        assert row.sentence.isprintable(), row
        assert not row.sentence.endswith("."), row
        assert row.sentence[0].islower() or row.sentence.startswith("Slurm"), row


def test_figures_show_that_all_reasons_are_explained() -> None:
    figures = words.figures()
    assert figures["reasons_explained"] == figures["reasons_of_slurm"] == 217
    assert figures["unexplained"] == []


def test_unknown_reason_of_a_later_slurm_has_a_general_sentence() -> None:
    assert explained("NewInThisSlurm").sentence == "Slurm gives no other reason than this word"
    assert explained("QOSNewInThisSlurm").sentence == "a limit is reached"
