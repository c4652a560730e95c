"""Fixtures that more than one folder of tests uses."""

from tests.cluster_fixture import shared_cluster

__all__ = ["shared_cluster"]
