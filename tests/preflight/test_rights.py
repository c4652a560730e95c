"""The rights that preflight asks for are those that the extender's roles give."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.local.chart import Rendered, values_of
from deploy.local.helm_binary import helm
from deploy.local.progress import silent
from deploy.local.spec import ClusterSpec
from extender.preflight import rights
from extender.settings import Settings
from kubernetes_client.protocol import Right

pytestmark = pytest.mark.real  # Helm is built, once


def given(manifest: Any) -> Iterator[Right]:
    namespace = manifest["metadata"].get("namespace", "")
    for rule in manifest["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for verb in rule["verbs"]:
                    for name in rule.get("resourceNames", [""]):
                        yield Right(verb, resource, group, namespace, name)


@pytest.mark.parametrize("all_of_it", [True, False])
def test_they_are_those_of_the_roles(all_of_it: bool) -> None:
    spec = ClusterSpec(self_signed=all_of_it, pools="pools: []" if all_of_it else "")
    chart = Rendered.of(helm(silent), values_of(spec, 1, "ca"))
    roles = [each for each in chart.manifests if each["metadata"]["name"] == "slurm-extender"]
    roles = [each for each in roles if each["kind"] in ("ClusterRole", "Role")]
    more: dict[str, Any] = {"tls_secret": "slurm-extender-webhooks", "pools_file": Path("pools")}
    settings = Settings(
        slurm_token_file=Path("token"), namespace="kube-system", **(more if all_of_it else {})
    )
    asked = rights.of_extender(settings)
    assert len(asked) == len(set(asked))
    assert set(asked) == {right for role in roles for right in given(role)}
