"""Renders the objects of the chart slurm-extender with Helm. Equal values are rendered only once."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import cache

from deploy.local.chart import Rendered, Values
from deploy.local.cluster import Cluster
from deploy.local.programs.helm_binary import helm
from deploy.local.progress import silent
from tests.chart_matrix import with_needed

RBAC = ("ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
POLICIES = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")


def rendered(values: Values) -> Rendered:
    """Renders the objects with Helm. Tests share the objects and must not change the objects. Raises
    ClusterError with Helm's message."""
    return _rendered(json.dumps(with_needed(values)))


@cache
def _rendered(values: str) -> Rendered:
    return Rendered.of(helm(silent), json.loads(values))


def install(cluster: Cluster, values: Values, kinds: Collection[str]) -> Rendered:
    """Creates the chart's objects of these kinds in the cluster. Returns all objects of the chart."""
    chart = rendered(values)
    wanted = [each for each in chart.manifests if each["kind"] in kinds]
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": wanted})
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=listed)
    return chart


@contextmanager
def roles_and_policies(cluster: Cluster, values: Values) -> Iterator[Rendered]:
    """Creates the roles and the admission policies of a release. At the end of the block, deletes the
    policies, but not the roles."""
    chart = install(cluster, values, RBAC + POLICIES)
    try:
        yield chart
    finally:
        for each in (each for each in chart.manifests if each["kind"] in POLICIES):
            cluster.kubectl("delete", each["kind"], each["metadata"]["name"])
