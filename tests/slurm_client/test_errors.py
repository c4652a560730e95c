"""Tests of the table of Slurm's error numbers."""

import errno

import pytest

from service.health import common_problem
from slurm_client.errors import (
    CAUSES,
    InvalidRequest,
    JobIdTaken,
    NeedsOperator,
    NoRoomNow,
    OutcomeUnknown,
    RetryLater,
    SlurmError,
    Unexplained,
    Unreachable,
    classify,
)
from slurm_client.rest.error_mapping import problem

LISTED: dict[type[SlurmError], tuple[int, ...]] = {
    JobIdTaken: (2011,),
    NoRoomNow: (2013, 2016),
    InvalidRequest: (2000, 2018),
    RetryLater: (2007, 2050),
    Unreachable: (1800, errno.ECONNREFUSED),
    OutcomeUnknown: (1802, errno.ECONNRESET, 5004),
    NeedsOperator: (1007, 2002, 2010, 2017),
}
BY_RANGE: dict[type[SlurmError], tuple[int, ...]] = {
    OutcomeUnknown: (1099, 5999),
    InvalidRequest: (2999, 9299),
    NeedsOperator: (13, 7005),
}


@pytest.mark.parametrize("listed", [True, False])
def test_an_error_number_is_classified_by_the_table_or_by_its_range(listed: bool) -> None:
    for error, numbers in (LISTED if listed else BY_RANGE).items():
        for number in numbers:
            assert (number in CAUSES, classify(number)) == (listed, error)


def test_a_connection_reset_by_a_killed_slurmctld_counts_as_an_outage() -> None:
    """slurmrestd 26.05.5 gives this answer to GET jobs/ if slurmctld is killed during the request."""
    reply = {
        "errors": [{"error_number": 104, "error": "slurm_load_ctl_conf() failed: Connection reset"}]
    }
    error = problem(500, b"", reply)
    assert isinstance(error, OutcomeUnknown)
    assert common_problem(error) == "Slurm"


@pytest.mark.parametrize("number", [errno.EACCES, errno.ENOENT])
def test_an_error_number_of_a_job_submit_plugin_is_not_an_outage(number: int) -> None:
    answered = {"error_number": number, "error": "refused"}
    error = problem(500, b"", {"errors": [answered]})
    assert isinstance(error, NeedsOperator)
    assert common_problem(error) is None


def test_every_number_has_a_name_and_a_reason_of_its_own() -> None:
    names = [cause.name for cause in CAUSES.values()]
    assert len(set(names)) == len(names)
    assert all(cause.why for cause in CAUSES.values())


def test_unreachable_may_be_handled_as_retry_later() -> None:
    assert issubclass(Unreachable, RetryLater)


def test_the_text_of_an_error_has_its_number_and_http_status() -> None:
    error = InvalidRequest("Invalid partition", number=2000, http_status=422)
    assert str(error) == "Invalid partition (Slurm error 2000, HTTP 422)"
    assert str(RetryLater("busy")) == "busy"


def test_an_unspecified_error_points_to_slurmrestds_log() -> None:
    reply = {"errors": [{"error_number": -1, "error": "Unspecified error"}]}
    error = problem(500, b"", reply)
    assert type(error) is Unexplained
    assert str(error).startswith("Unspecified error: perhaps a plugin of Slurm's refuses it")
    assert "slurmrestd's log" in error.words


def test_a_short_error_message_of_slurm_is_explained() -> None:
    reply = {"errors": [{"error_number": 11, "error": "Resource temporarily unavailable"}]}
    error = problem(500, b"", reply)
    assert isinstance(error, RetryLater)
    assert "MaxJobCount" in error.words
