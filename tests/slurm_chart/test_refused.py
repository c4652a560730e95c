"""Values that cannot be are refused before anything is installed, by words that name them."""

from __future__ import annotations

import re

import pytest

from deploy.local.errors import ClusterError
from tests.slurm_chart.matrix import REFUSED
from tests.slurm_chart.rendering import text

pytestmark = pytest.mark.real  # Helm is built, once


@pytest.mark.parametrize("case", REFUSED)
def test_invalid_values_are_rejected(case: str) -> None:
    values, words = REFUSED[case]
    with pytest.raises(ClusterError, match=re.escape(words)):
        text(values)
