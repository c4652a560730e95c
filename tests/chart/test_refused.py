"""Tests of invalid values: before the installation, Helm rejects the values, and the message names the
values."""

from __future__ import annotations

import re

import pytest

from deploy.local.errors import ClusterError
from tests.chart.rendering import rendered
from tests.chart_matrix import REFUSED

pytestmark = pytest.mark.real  # the first test builds Helm


@pytest.mark.parametrize("case", REFUSED)
def test_invalid_values_are_refused(case: str) -> None:
    values, words = REFUSED[case]
    with pytest.raises(ClusterError, match=re.escape(words)):
        rendered(values)
