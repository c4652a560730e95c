"""Tests of the programs' containers: each program accepts the container's environment variables, and can
read the mounted files."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from deploy.local.chart import AGENT_NAME, RELEASE, Manifest
from extender.policy.file import read as read_policy
from extender.pools.file import read as read_pools
from extender.settings import Settings as ExtenderSettings
from node_agent.settings import Settings as AgentSettings
from tests.chart.rendering import rendered
from tests.chart_matrix import MATRIX, POOLS, merged

pytestmark = pytest.mark.real  # the first test builds Helm

INSIDE = [case for case in MATRIX if not case.startswith("outside")]


def containers(workload: Manifest) -> Iterator[dict[str, Any]]:
    yield from workload["spec"]["template"]["spec"]["containers"]


def environment(container: dict[str, Any]) -> dict[str, str]:
    """Returns the environment variables of a container. A variable from the kubelet gets an arbitrary
    value."""
    return {each["name"]: each.get("value", "some-name") for each in container["env"]}


def told(monkeypatch: pytest.MonkeyPatch, workload: Manifest, container: str) -> None:
    """Gives this process the environment variables of a container."""
    (found,) = (each for each in containers(workload) if each["name"] == container)
    for name, value in environment(found).items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("case", INSIDE)
def test_extender_accepts_the_settings_of_the_chart(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name = MATRIX[case].get("fullnameOverride", RELEASE)
    chart = rendered(MATRIX[case])
    deployment = f"{name}-0" if "Nodes by name" in case else name
    told(monkeypatch, chart.find("Deployment", deployment), "extender")
    settings = ExtenderSettings()
    at = "fd00::20" if "IPv6" in case else "10.96.0.20"
    called = (at,) if "existing" in case else ()
    assert settings.webhook_names == (f"{name}.kube-system.svc", *called)
    assert settings.webhook_configuration == name
    assert (settings.tls_secret is None) == (settings.tls_cert_file is not None)
    assert chart.find("MutatingWebhookConfiguration", name)


def test_extender_settings_come_from_the_values(monkeypatch: pytest.MonkeyPatch) -> None:
    for case in ("settings", "namespaces as SUNK has them", "labels", "NVIDIA"):
        told(monkeypatch, rendered(MATRIX[case]).find("Deployment", RELEASE), "extender")
    settings = ExtenderSettings()
    assert (settings.shared_gpus, settings.job_id_first) == ("node-agent", 40_000_000)
    assert settings.taint_nodes is True
    assert settings.drain_taints == ("example.com/maintenance", "example.com/broken")
    assert settings.cpu_unit == Decimal(2)
    assert (settings.poll_interval_s, settings.kill_wait_s) == (0.5, 60)
    assert settings.pod_selector == "slurm=yes,tier in (gold,silver),!test"
    assert settings.gres["nvidia.com/mig-1g.10gb"] == "gpu:1g.10gb"


def test_scope_comes_from_the_namespaces_in_the_values(monkeypatch: pytest.MonkeyPatch) -> None:
    scopes = {
        "defaults": ("cluster",),
        "namespaces": ("team-a", "team-b"),
        "namespaces as SUNK has them": ("team-a", "team-b"),
        "its own namespace": ("kube-system",),
    }
    for case, scope in scopes.items():
        told(monkeypatch, rendered(MATRIX[case]).find("Deployment", RELEASE), "extender")
        assert ExtenderSettings().scope == scope


@pytest.mark.parametrize("case", [case for case in INSIDE if case != "no node agent"])
def test_node_agent_accepts_the_settings_of_the_chart(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = MATRIX[case].get("fullnameOverride")
    agent = f"{name}-node-agent" if name else AGENT_NAME
    daemon_set = rendered(MATRIX[case]).find("DaemonSet", agent)
    told(monkeypatch, daemon_set, "node-agent")
    settings = AgentSettings()
    assert settings.cgroups == Path("/host/cgroup")
    assert (settings.nri is None) == (case == "NVIDIA")
    folder = Path("/var/lib/dcgm-exporter/job-mapping")
    assert settings.job_mapping == (folder if case == "NVIDIA" else None)
    assert (str(folder) in _writable(daemon_set)) == (case == "NVIDIA")
    assert settings.slurmd_namespace == ("slurm-nodes" if case == "pools" else "")


def _writable(workload: dict[str, Any]) -> set[str]:
    """Returns the host's folders to which a container can write. The container must see a folder under
    the same path as the host."""
    spec = workload["spec"]["template"]["spec"]
    host = {each["name"]: each["hostPath"]["path"] for each in spec["volumes"] if "hostPath" in each}
    mounts = spec["containers"][0]["volumeMounts"]
    return {
        each["mountPath"]
        for each in mounts
        if host.get(each["name"]) == each["mountPath"] and not each.get("readOnly")
    }


def test_extender_reads_the_policy_and_pools_of_the_chart(tmp_path: Path) -> None:
    chart = rendered(merged(POOLS, MATRIX["a policy"]))
    policy, pools = tmp_path / "policy.yaml", tmp_path / "pools.yaml"
    policy.write_text(chart.find("ConfigMap", f"{RELEASE}-policy")["data"]["policy.yaml"])
    pools.write_text(chart.find("ConfigMap", f"{RELEASE}-pools")["data"]["pools.yaml"])
    assert [rule.name for rule in read_policy(policy).rules] == ["team-a"]
    assert [pool.name for pool in read_pools(pools)] == ["gpu"]


@pytest.mark.parametrize("case", INSIDE)
def test_mounts_have_volumes_and_only_the_agent_is_unrestricted(case: str) -> None:
    """The expected restrictions are those of the restricted Pod Security Standard."""
    for workload in rendered(MATRIX[case]).manifests:
        if workload["kind"] not in ("Deployment", "DaemonSet", "Job"):
            continue
        spec = workload["spec"]["template"]["spec"]
        volumes = {each["name"] for each in spec["volumes"]}
        mounted = {each["name"] for one in spec["containers"] for each in one["volumeMounts"]}
        assert mounted == volumes
        for one in spec["containers"]:
            assert one["securityContext"]["allowPrivilegeEscalation"] is False
            assert one["securityContext"]["readOnlyRootFilesystem"] is True
            assert one["securityContext"]["capabilities"]["drop"] == ["ALL"]
            added = one["securityContext"]["capabilities"].get("add", [])
            assert added == (["BPF", "NET_ADMIN"] if workload["kind"] == "DaemonSet" else [])
        if workload["kind"] != "DaemonSet":
            assert spec["securityContext"]["runAsNonRoot"] is True
            assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
            assert not any("hostPath" in each for each in spec["volumes"])
