"""Tests of invalid values: Helm rejects the values before the installation, with a message that names
the values."""

from __future__ import annotations

import re

import pytest

from deploy.local.errors import ClusterError
from tests.slurm_chart.matrix import REFUSED
from tests.slurm_chart.rendering import text

pytestmark = pytest.mark.real  # the first test builds Helm


@pytest.mark.parametrize("case", REFUSED)
def test_invalid_values_are_rejected(case: str) -> None:
    values, words = REFUSED[case]
    with pytest.raises(ClusterError, match=re.escape(words)):
        text(values)
