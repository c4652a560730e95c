"""Tests of the roles of the chart's Pods: each ServiceAccount has exactly the permissions for its
program's calls to kube-apiserver."""

from __future__ import annotations

import pytest

from tests.chart.asked import Calls, Permission, allowed_to, asked_by, missing, unused
from tests.slurm_chart.rendering import NAMESPACE, rendered

pytestmark = pytest.mark.real  # the first test builds Helm


def secret(namespace: str, name: str) -> dict[str, dict[str, str]]:
    return {"metadata": {"namespace": namespace, "name": name, "resourceVersion": "1"}}


CALLS: dict[str, Calls] = {
    "slurmctld": {"create_event": [(NAMESPACE, {})]},
    "slurm-keys": {
        "read_secret": [(NAMESPACE, name) for name in ("slurm-key", "slurm-jwt-key", "mariadb")],
        "write_secret": [({"metadata": {"namespace": NAMESPACE, "name": "slurm-key"}},)],
    },
    "slurm-publish-secrets": {
        "read_secret": [("slurm-extender", "slurm-token"), ("slurm-nodes", "slurmd")],
        "write_secret": [(secret("slurm-extender", "slurm-token"),), (secret("slurm-nodes", "slurmd"),)],
    },
}
"""The client calls that each account's program makes. Each element of a list has the arguments of one
call."""


@pytest.mark.parametrize("account", CALLS)
async def test_each_account_has_exactly_the_permissions_of_its_program(account: str) -> None:
    values = {
        "slurmExtender": {"namespace": "slurm-extender"},
        "slurmd": {"namespaces": ["slurm-nodes"]},
    }
    allowed = allowed_to(rendered(values), account)
    asked = await asked_by(CALLS[account], ())
    assert missing(allowed, asked) == []
    assert unused(allowed, asked) == []


async def test_an_unused_permission_is_detected() -> None:
    allowed = allowed_to(rendered({}), "slurmctld") | {Permission("delete", "", "pods", NAMESPACE)}
    assert unused(allowed, await asked_by(CALLS["slurmctld"], ())) != []
