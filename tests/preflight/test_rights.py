"""Tests of preflight's checks of rights: preflight checks exactly the rights from the extender's
roles."""

from pathlib import Path
from typing import Any

import pytest

from deploy.local.chart import RELEASE, Rendered, values_of
from deploy.local.programs.helm_binary import helm
from deploy.local.progress import silent
from deploy.local.spec import ClusterSpec
from extender.preflight import rights
from extender.settings import Settings
from kubernetes_client.protocol import Right
from tests.chart.asked import allowed_to

pytestmark = pytest.mark.real  # the first test builds Helm


@pytest.mark.parametrize("namespaces", [(), ("team-a", "team-b"), ("kube-system",)])
@pytest.mark.parametrize("all_of_it", [True, False])
def test_checked_rights_equal_the_rights_of_the_roles(
    all_of_it: bool, namespaces: tuple[str, ...]
) -> None:
    pools = "pools: []" if all_of_it else ""
    spec = ClusterSpec(self_signed=all_of_it, pools=pools, namespaces=namespaces)
    chart = Rendered.of(helm(silent), values_of(spec, 1, "ca"))
    more: dict[str, Any] = {"tls_secret": "slurm-extender-webhooks", "pools_file": Path("pools")}
    settings = Settings(
        slurm_token_file=Path("token"),
        namespace="kube-system",
        scope=namespaces or ("cluster",),
        **(more if all_of_it else {}),
    )
    asked = rights.of_extender(settings)
    assert len(asked) == len(set(asked))
    given = allowed_to(chart, RELEASE)
    assert set(asked) == {
        Right(each.verb, each.resource, each.group, each.namespace, each.name) for each in given
    }
