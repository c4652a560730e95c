"""Tests of NetworkPolicies: each Pod of the chart has a NetworkPolicy, and the policy opens the ports of
slurmrestd."""

from __future__ import annotations

import pytest

from deploy.local.chart import AGENT_NAME, RELEASE, Manifest, Values
from tests.chart.rendering import rendered
from tests.chart_matrix import UNINSTALL

pytestmark = pytest.mark.real  # the first test builds Helm


def ports_out(values: Values) -> set[int]:
    chart = rendered(values)
    rules = chart.find("NetworkPolicy", RELEASE)["spec"]["egress"]
    return {each["port"] for rule in rules for each in rule["ports"]} - {53, 5353, 443, 6443}


@pytest.mark.parametrize(
    ("address", "port"),
    [
        ("http://slurmrestd:6820", 6820),
        ("http://slurmrestd", 80),
        ("http://[fd00::1]:6820", 6820),
        ("http://[fd00::1]", 80),
    ],
)
def test_policy_allows_the_port_of_the_slurmrestd_address(address: str, port: int) -> None:
    assert ports_out({"slurm": {"restUrl": address}}) == {port}


def test_policy_allows_the_ports_of_pods_behind_the_slurmrestd_service() -> None:
    policy = {"slurm": {"ports": [6820]}}
    values: Values = {"slurm": {"restUrl": "http://slurmrestd:80"}, "networkPolicy": policy}
    assert ports_out(values) == {80, 6820}


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("Deployment", RELEASE),
        ("DaemonSet", AGENT_NAME),
        ("Job", f"{RELEASE}-uninstall"),
        ("Pod", f"{RELEASE}-check"),
    ],
)
def test_each_pod_has_one_policy_with_the_same_lifetime(kind: str, name: str) -> None:
    chart = rendered(UNINSTALL)
    workload = chart.find(kind, name)
    pod = workload if kind == "Pod" else workload["spec"]["template"]
    labels = pod["metadata"]["labels"]
    (policy,) = (
        each
        for each in chart.manifests
        if each["kind"] == "NetworkPolicy"
        and each["spec"]["podSelector"]["matchLabels"].items() <= labels.items()
    )
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
    assert made_for(policy) == made_for(workload)


def made_for(manifest: Manifest) -> str:
    """Returns the Helm hook that creates an object; "" if the object is no hook."""
    return str((manifest["metadata"].get("annotations") or {}).get("helm.sh/hook", ""))


@pytest.mark.parametrize(("jobs", "asks"), [("keep", False), ("end", True)])
def test_uninstall_reaches_slurm_only_if_it_ends_jobs(jobs: str, asks: bool) -> None:
    values: Values = {"uninstall": {"gates": "lift", "jobs": jobs}}
    chart = rendered(values)
    rules = chart.find("NetworkPolicy", f"{RELEASE}-uninstall")["spec"]["egress"]
    assert (6820 in {each["port"] for rule in rules for each in rule["ports"]}) is asks
