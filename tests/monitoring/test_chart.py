"""What the chart ships for monitoring, as Helm renders it. tests/chart has kube-apiserver take it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.local.chart import Rendered, Values, template
from deploy.local.helm_binary import helm
from deploy.local.progress import silent
from deploy.local.prometheus import Prometheus
from deploy.monitoring.dashboards import DASHBOARDS
from deploy.monitoring.rule import RUNBOOKS, document
from deploy.monitoring.rules import GROUPS
from tests.chart.matrix import with_needed

pytestmark = pytest.mark.real

ON: Values = {
    name: {"enabled": True, "labels": {"release": name}}
    for name in ("serviceMonitor", "podMonitor", "rules", "dashboards")
}
OF_THE_OPERATOR = {"PrometheusRule", "ServiceMonitor", "PodMonitor"}


def rendered(**monitoring: Any) -> Rendered:
    values = with_needed({"monitoring": monitoring})
    return Rendered.parsed(template(helm(silent), values))


def of_monitoring(objects: Rendered) -> list[dict[str, Any]]:
    return [
        each
        for each in objects.manifests
        if each["kind"] in OF_THE_OPERATOR or each["metadata"]["name"].endswith("-dashboard")
    ]


def test_nothing_is_made_that_was_not_asked_for() -> None:
    assert of_monitoring(rendered()) == []


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("rules", ["PrometheusRule"]),
        ("serviceMonitor", ["ServiceMonitor"]),
        ("podMonitor", ["PodMonitor"]),
        ("dashboards", ["ConfigMap"] * len(DASHBOARDS)),
    ],
)
def test_each_part_is_made_by_its_own_value_and_has_its_labels(name: str, kinds: list[str]) -> None:
    made = of_monitoring(rendered(**{name: ON[name]}))
    assert [each["kind"] for each in made] == kinds
    assert all(each["metadata"]["labels"]["release"] == name for each in made)


def test_the_rules_are_those_of_the_code(tools: Prometheus, tmp_path: Path) -> None:
    (rule,) = of_monitoring(rendered(rules=ON["rules"]))
    assert rule["spec"] == document(GROUPS)
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump(rule["spec"]))
    assert tools.promtool("check", "rules", str(file)).returncode == 0


@pytest.mark.parametrize("url", ["https://wiki.example.com/run", "https://wiki.example.com/run/"])
def test_runbooks_may_be_elsewhere(url: str) -> None:
    (rule,) = of_monitoring(rendered(rules=ON["rules"], runbookUrl=url))
    expected = json.dumps(document(GROUPS)).replace(RUNBOOKS, "https://wiki.example.com/run/")
    assert rule["spec"] == json.loads(expected)
    assert RUNBOOKS not in json.dumps(rule)


def test_the_dashboards_are_those_of_the_code() -> None:
    made = of_monitoring(rendered(dashboards=ON["dashboards"]))
    shipped = {name: json.loads(text) for each in made for name, text in each["data"].items()}
    assert shipped == {f"slurm-extender-{each.name}.json": each.document() for each in DASHBOARDS}


def test_targets_are_what_the_chart_makes() -> None:
    """A Service of the extender with that port, and Pods of the agent's DaemonSet with it."""
    objects = rendered(**ON)
    service = objects.find("Service", "slurm-extender")
    monitor = objects.find("ServiceMonitor", "slurm-extender")
    selected = monitor["spec"]["selector"]["matchLabels"].items()
    matching = [
        each
        for each in objects.manifests
        if each["kind"] == "Service" and selected <= each["metadata"]["labels"].items()
    ]
    assert matching == [service]
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
    agent = objects.find("DaemonSet", "slurm-extender-node-agent")["spec"]["template"]
    monitor = objects.find("PodMonitor", "slurm-extender-node-agent")
    assert monitor["spec"]["selector"]["matchLabels"].items() <= agent["metadata"]["labels"].items()
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    ports = [port for container in agent["spec"]["containers"] for port in container.get("ports", ())]
    assert endpoint["port"] in {port["name"] for port in ports}
    assert {"sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "node"} in endpoint[
        "relabelings"
    ]
