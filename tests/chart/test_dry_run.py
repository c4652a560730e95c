"""Tests of `dry_run`: if kubectl fails, this counts as a rejection, even if kubectl prints no
message."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from deploy.local.cluster import Cluster
from deploy.local.errors import ClusterError
from tests.chart.dry_run import rejections


@pytest.mark.parametrize(
    ("message", "rejected"),
    [
        ("", ["ClusterError('')"]),
        ("Pod is invalid\nJob is invalid", ["Pod is invalid", "Job is invalid"]),
    ],
)
def test_failed_dry_run_is_a_rejection(message: str, rejected: list[str]) -> None:
    cluster = Mock(spec=Cluster)
    cluster.kubectl.side_effect = ClusterError(message)
    assert rejections(cluster, ["kind: Pod\n---\nkind: Job\n"]) == (2, rejected)
