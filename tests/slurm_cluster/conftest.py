"""What all tests of this folder have."""

from tests.log_of_slurmctld import pytest_runtest_makereport

__all__ = ["pytest_runtest_makereport"]
