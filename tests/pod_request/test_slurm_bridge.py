"""With a setting, the extender reads Pods for slurm-bridge with the same meaning as slurm-bridge."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from deploy.local.layout import CHECKOUT
from extender.pod_request.annotations import DEFAULT_PAGE, ParsedAnnotations
from extender.pod_request.job_request import Request, read_request
from extender.pod_request.slurm_bridge import (
    NOT_READ,
    OLD_PREFIX,
    PREFIX,
    SECTION,
    TABLE,
    read_slurm_bridge,
)
from slurm_client.model import Sharing
from tests.builders import TRANSLATION, pod_manifest
from tests.documentation.pages import anchors
from wellknown.names import DEFAULT_PREFIX

READS = replace(TRANSLATION, slurm_bridge=True)


def fields(**values: str) -> Mapping[str, Any]:
    """Returns the request from annotations of these names."""
    read = read_slurm_bridge({PREFIX + name.replace("_", "-"): value for name, value in values.items()})
    assert not read.problems
    return read.fields


def requested(annotations: Mapping[str, str]) -> Request:
    return read_request(pod_manifest(annotations=dict(annotations)), READS)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_annotation_with_the_same_meaning_is_read(row: Any) -> None:
    assert row.field in fields(**{row.name.replace("-", "_"): row.example})


@pytest.mark.parametrize("limit", ["0", "five", "5m", "1:00", "525601", "-1", ""])
def test_a_time_limit_is_in_minutes(limit: str) -> None:
    assert fields(timelimit="5")["time_limit_minutes"] == 5
    (problem,) = read_slurm_bridge({PREFIX + "timelimit": limit}).problems
    assert problem.startswith(f'annotation {PREFIX}timelimit: "{limit}" is not a whole number from 1 to')


def test_job_is_exclusive_unless_the_annotation_says_false() -> None:
    assert fields(account="a")["shared"] is Sharing.NONE
    assert fields(exclusive="yes")["shared"] is fields(exclusive="True")["shared"] is Sharing.NONE
    assert fields(exclusive="false")["shared"] is fields(exclusive=" False ")["shared"] is None


def test_pod_without_slurm_bridge_annotations_is_read_as_usual() -> None:
    own = {DEFAULT_PREFIX + "partition": "main"}
    assert requested(own) == read_request(pod_manifest(annotations=own), TRANSLATION)
    assert read_slurm_bridge(own).fields == {}


def test_annotation_of_the_extender_overrides_slurm_bridge() -> None:
    both = {
        PREFIX + "partition": "theirs",
        PREFIX + "account": "theirs",
        DEFAULT_PREFIX + "partition": "mine",
        DEFAULT_PREFIX + "exclusive": "user",
    }
    job = requested(both).job
    assert (job.partition, job.account, job.shared) == ("mine", "theirs", Sharing.USER)


@pytest.mark.parametrize("name", NOT_READ)
def test_annotation_without_a_counterpart_causes_a_warning(name: str) -> None:
    read = read_slurm_bridge({PREFIX + name: "1"})
    assert read.fields == {"shared": Sharing.NONE}
    assert not read.problems
    (warning,) = read.warnings
    assert warning.startswith(f"annotation {PREFIX}{name} does nothing: ")


def test_misspelt_name_and_user_name_as_user_id_are_problems() -> None:
    (problem,) = read_slurm_bridge({PREFIX + "time-limit": "5"}).problems
    assert f"did you mean {PREFIX}timelimit?" in problem
    (problem,) = requested({PREFIX + "user-id": "alice"}).problems
    assert problem.startswith(f'annotation {PREFIX}user-id: "alice" is not a whole number')


def test_every_message_points_to_the_page() -> None:
    assert SECTION in anchors(CHECKOUT / DEFAULT_PAGE)
    read = read_slurm_bridge({PREFIX + "timelimit": "", PREFIX + "wckey": "w", PREFIX + "other": ""})
    assert all(told.endswith(f"({DEFAULT_PAGE}#{SECTION})") for told in read.problems + read.warnings)
    assert len(read.problems + read.warnings) == 3


def test_slurm_bridge_annotations_are_ignored_without_the_setting() -> None:
    pod = pod_manifest(annotations={PREFIX + "partition": "main"}, schedulerName="default-scheduler")
    assert not TRANSLATION.asks(pod)
    assert READS.asks(pod)
    assert read_request(pod, TRANSLATION).job.partition is None


def test_old_prefix_is_read_with_the_same_meaning() -> None:
    old = {OLD_PREFIX + "partition": "main", OLD_PREFIX + "timelimit": "5"}
    job = requested(old).job
    assert (job.partition, job.time_limit_minutes, job.shared) == ("main", 5, Sharing.NONE)
    both = requested(old | {PREFIX + "partition": "newer"})
    assert (both.job.partition, both.job.time_limit_minutes) == ("newer", 5)
    pod = pod_manifest(annotations=old, schedulerName="default-scheduler")
    assert not TRANSLATION.asks(pod)
    assert READS.asks(pod)


def test_message_about_the_old_prefix_names_that_prefix() -> None:
    read = read_slurm_bridge({OLD_PREFIX + "timelimit": "soon", OLD_PREFIX + "wckey": "w"})
    (problem,), (warning,) = read.problems, read.warnings
    assert problem.startswith(f'annotation {OLD_PREFIX}timelimit: "soon" is not')
    assert warning.startswith(f"annotation {OLD_PREFIX}wckey does nothing: ")


@pytest.mark.parametrize("name", ["slurm-node", "slurm-key-hash", "partitions"])
def test_other_names_under_the_old_prefix_are_no_requests(name: str) -> None:
    """slurm-bridge and slurm-operator write annotations under this prefix."""
    pod = pod_manifest(annotations={OLD_PREFIX + name: "x"}, schedulerName="default-scheduler")
    assert not READS.asks(pod)
    assert read_slurm_bridge({OLD_PREFIX + name: "x"}) == ParsedAnnotations({})
