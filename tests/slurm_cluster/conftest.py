"""Hooks for all tests of this folder."""

from tests.log_of_slurmctld import pytest_runtest_makereport

__all__ = ["pytest_runtest_makereport"]
