"""Tests of the chart's monitoring objects, as Helm renders them. tests/chart sends the same objects to
kube-apiserver."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.local.chart import CHART, NAMESPACE, Rendered, Values, template
from deploy.local.errors import ClusterError
from deploy.local.layout import CHECKOUT
from deploy.local.programs.helm_binary import helm
from deploy.local.progress import silent
from deploy.local.prometheus import Prometheus
from deploy.monitoring.__main__ import FOLDER
from deploy.monitoring.dashboards import DASHBOARDS
from deploy.monitoring.releases import ANY_CLUSTER, ANY_RELEASE
from deploy.monitoring.rule import RUNBOOKS, document
from deploy.monitoring.rules import GROUPS
from tests.chart_matrix import with_needed
from tests.monitoring.cases import CASES
from tests.monitoring.cases.case import WELL
from tests.monitoring.promtool import only, results

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


def test_chart_has_no_monitoring_objects_by_default() -> None:
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
def test_each_part_has_its_own_value_and_labels(name: str, kinds: list[str]) -> None:
    made = of_monitoring(rendered(**{name: ON[name]}))
    assert [each["kind"] for each in made] == kinds
    assert all(each["metadata"]["labels"]["release"] == name for each in made)


def rules_by(objects: Rendered) -> dict[str, Any]:
    (rule,) = of_monitoring(objects)
    spec: dict[str, Any] = rule["spec"]
    return spec


def expected(*replaced: tuple[str, str]) -> Any:
    """Returns the rules that the code has, after some texts are replaced."""
    text = json.dumps(document(GROUPS))
    for pair in replaced:
        old, new = (json.dumps(each)[1:-1] for each in pair)
        assert old in text
        text = text.replace(old, new)
    return json.loads(text)


OF_THE_RELEASE = (ANY_RELEASE, f'namespace="{NAMESPACE}"')


def test_rules_of_the_chart_are_the_rules_of_the_code(tools: Prometheus, tmp_path: Path) -> None:
    spec = rules_by(rendered(rules=ON["rules"]))
    assert spec == expected(OF_THE_RELEASE)
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump(spec))
    assert tools.promtool("check", "rules", str(file)).returncode == 0


@pytest.mark.parametrize("url", ["https://wiki.example.com/run", "https://wiki.example.com/run/"])
def test_address_of_runbooks_can_be_changed(url: str) -> None:
    spec = rules_by(rendered(rules=ON["rules"], runbookUrl=url))
    assert spec == expected(OF_THE_RELEASE, (RUNBOOKS, "https://wiki.example.com/run/"))
    assert RUNBOOKS not in json.dumps(spec)


# Which release the rules select

OUTSIDE: Values = {"outside": {"enabled": True, "url": "https://10.0.0.11:8443"}}


def test_rules_of_an_outside_extender_select_all_metrics() -> None:
    """If the extender runs outside the cluster, the extender's metrics have no namespace label."""
    objects = template(helm(silent), {"extender": OUTSIDE, "monitoring": {"rules": ON["rules"]}})
    assert rules_by(Rendered.parsed(objects)) == document(GROUPS)


def test_rules_apply_to_the_selected_metrics(tools: Prometheus, tmp_path: Path) -> None:
    """The rules for a cluster ignore a faulty release of another cluster in the same Prometheus."""
    by_cluster = f'cluster="{WELL}"'
    chosen = {"selector": f'{by_cluster},namespace=~"s.+"', "kubeApiServerSelector": by_cluster}
    spec = rules_by(rendered(rules=ON["rules"] | chosen))
    assert spec == expected((ANY_RELEASE, chosen["selector"]), (ANY_CLUSTER, by_cluster))
    for alert in (
        "SlurmUnreachable",
        "WebhookFailing",
        "WebhooksNotWatched",
        "PlacementBudgetBurnsFast",
    ):
        name = f"SlurmExtender{alert}"
        cases = [case for case in CASES if case.alert == name]
        tests = [case.passed_over() for case in cases]
        status, said = results(tools, only(name, spec), tests, tmp_path)
        assert status == 0, said
        for_all = yaml.safe_load((CHECKOUT / FOLDER / "rules.yaml").read_text())
        assert results(tools, only(name, for_all), tests, tmp_path)[0] == 1


@pytest.mark.parametrize(
    "wrong",
    ["slurm-extender", '{cluster="a"}', 'cluster="a" , b="c"', "cluster='a'", 'a="b\'"', 'a="b",'],
)
@pytest.mark.parametrize("value", ["selector", "kubeApiServerSelector"])
def test_invalid_matcher_is_refused(value: str, wrong: str) -> None:
    with pytest.raises(ClusterError, match=f"at '/monitoring/rules/{value}'"):
        rendered(rules=ON["rules"] | {value: wrong})


def test_dashboards_of_the_chart_are_the_dashboards_of_the_code() -> None:
    made = of_monitoring(rendered(dashboards=ON["dashboards"]))
    shipped = {name: json.loads(text) for each in made for name, text in each["data"].items()}
    assert shipped == {f"slurm-extender-{each.name}.json": each.document() for each in DASHBOARDS}


def test_monitors_select_the_service_and_pods_of_the_chart() -> None:
    """The ServiceMonitor must select the extender's Service, and the PodMonitor the Pods of the agent's
    DaemonSet. Both must name an existing port."""
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


# Notes after an installation


def notes(**monitoring: Any) -> str:
    """Returns the notes that `helm install` prints."""
    values = with_needed({"monitoring": monitoring})
    command = [str(helm(silent)), "install", "a", str(CHART), "--dry-run=client", "--values", "-"]
    done = subprocess.run(
        command, input=yaml.safe_dump(values), capture_output=True, text=True, check=True
    )
    return done.stdout.partition("\nNOTES:\n")[2]


def test_notes_name_metrics_that_alerts_lack() -> None:
    nobody, agents = "monitoring.serviceMonitor is off", "monitoring.podMonitor is off"
    assert [words in notes(rules=ON["rules"]) for words in (nobody, agents)] == [True, True]
    watched = notes(rules=ON["rules"], serviceMonitor=ON["serviceMonitor"], podMonitor=ON["podMonitor"])
    assert [words in watched for words in (nobody, agents)] == [False, False]
    assert [words in notes() for words in (nobody, agents)] == [False, False]
