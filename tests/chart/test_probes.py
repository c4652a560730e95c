"""Tests of the probes of the containers: where the kubelet sends the probes, and after which time the
kubelet restarts a container."""

from __future__ import annotations

from typing import Any

import pytest

from deploy.local.chart import RELEASE, Manifest
from extender.settings import Settings
from tests.chart.rendering import rendered
from tests.chart_matrix import MATRIX, UNINSTALL

pytestmark = pytest.mark.real  # the first test builds Helm

PROBES = ("startupProbe", "livenessProbe", "readinessProbe")


def containers(workload: Manifest) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in workload["spec"]["template"]["spec"]["containers"]}


def ports(container: dict[str, Any]) -> dict[str, int]:
    return {each["name"]: each["containerPort"] for each in container.get("ports", [])}


def patience_s(probe: dict[str, Any]) -> int:
    """Returns the shortest time until the kubelet ends a container, because the container fails the
    probe."""
    return int(probe["periodSeconds"] * probe["failureThreshold"])


def test_probes_of_kube_scheduler_ask_the_extender_of_its_pod() -> None:
    """The kubelet sends the probes to the Pod's address. By default, the extender listens on every
    address of the Pod."""
    chart = rendered({})
    found = containers(chart.find("Deployment", RELEASE))
    extender, scheduler = found["extender"], found["kube-scheduler"]
    for probe in ("startupProbe", "livenessProbe"):
        asked = {"path": "/healthz", "port": ports(extender)["health"]}
        assert scheduler[probe]["httpGet"] == asked
        assert extender[probe]["httpGet"]["path"] == asked["path"]
    assert Settings.model_fields["listen_address"].default == "0.0.0.0"
    assert "SLURM_EXTENDER_LISTEN_ADDRESS" not in {each["name"] for each in extender["env"]}
    assert patience_s(scheduler["startupProbe"]) == patience_s(extender["startupProbe"])
    # kube-scheduler must end first. So the Lease moves to the other replica before the kubelet ends this
    # Pod's extender.
    assert patience_s(scheduler["livenessProbe"]) < patience_s(extender["livenessProbe"])


def test_readiness_probe_asks_kube_scheduler_itself() -> None:
    chart = rendered({})
    scheduler = containers(chart.find("Deployment", RELEASE))["kube-scheduler"]
    asked = scheduler["readinessProbe"]["httpGet"]
    assert asked == {"path": "/readyz", "port": "kube-scheduler", "scheme": "HTTPS"}


@pytest.mark.parametrize("case", [case for case in MATRIX if not case.startswith("outside")])
def test_probe_names_a_port_of_its_own_container(case: str) -> None:
    """If the named port belongs to another container of the Pod, the kubelet does not find the port, and
    the probe fails."""
    for workload in rendered(MATRIX[case]).manifests:
        if workload["kind"] not in ("Deployment", "DaemonSet"):
            continue
        for container in containers(workload).values():
            asked = {container[probe]["httpGet"]["port"] for probe in PROBES}
            assert {port for port in asked if isinstance(port, str)} <= ports(container).keys()


def test_pods_select_linux_nodes_unless_a_value_overrides_it() -> None:
    values = {"extender": {"nodeSelector": {"kubernetes.io/os": "other", "a": "b"}}}
    linux, other = {"kubernetes.io/os": "linux"}, values["extender"]["nodeSelector"]
    for given, selector in (({}, linux), (values, other)):
        chart = rendered({**UNINSTALL, **given})
        for kind, suffix in (("Deployment", ""), ("Job", "-uninstall"), ("Pod", "-check")):
            workload = chart.find(kind, f"{RELEASE}{suffix}")
            spec = workload["spec"] if kind == "Pod" else workload["spec"]["template"]["spec"]
            assert spec["nodeSelector"] == selector
        agents = chart.find("DaemonSet", f"{RELEASE}-node-agent")["spec"]["template"]["spec"]
        assert agents["nodeSelector"] == linux
