"""Tests of the rules and dashboards: the files are generated from the code, valid, and tested."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path

import pytest
import yaml

from deploy.local.layout import CHECKOUT
from deploy.local.prometheus import Prometheus
from deploy.monitoring import pages
from deploy.monitoring.__main__ import FOLDER, files
from deploy.monitoring.dashboards import DASHBOARDS
from deploy.monitoring.expressions import metrics_in, selected
from deploy.monitoring.objectives import OBJECTIVES
from deploy.monitoring.panel import Dashboard
from deploy.monitoring.rule import RUNBOOKS
from deploy.monitoring.rules import ALERTS, GROUPS
from extender.telemetry.catalogue import METRICS
from service.metrics import SECONDS
from tests.chart.figures import leave
from tests.monitoring.cases import CASES
from tests.monitoring.cases.case import BROKEN, WELL, Case
from tests.monitoring.promtool import only, results

RULES = CHECKOUT / FOLDER / "rules.yaml"
NAMES = [alert.name for alert in ALERTS]
HEADINGS = ["What it means", "Where to look", "What to do"]


# The files are generated from the code


def test_files_are_generated_from_the_code() -> None:
    made = dict(files())
    there = {str(path.relative_to(CHECKOUT)) for path in (CHECKOUT / FOLDER).rglob("*.*")}
    assert there == made.keys()
    for name, text in made.items():
        assert (CHECKOUT / name).read_text() == text, "run `make docs`"


@pytest.mark.parametrize("name", pages.PAGES)
def test_tables_of_the_pages_are_generated_from_the_code(name: str) -> None:
    page = (CHECKOUT / name).read_text()
    assert pages.renewed(name, page) == page, "run `make docs`"


# The files are valid


@pytest.mark.real
def test_promtool_accepts_the_rules(tools: Prometheus) -> None:
    done = tools.promtool("check", "rules", str(RULES))
    assert done.returncode == 0, done.stderr
    assert f"{sum(len(group.rules) for group in GROUPS)} rules found" in done.stdout


@pytest.mark.real
def test_promtool_reads_every_expression_of_a_dashboard(tools: Prometheus, tmp_path: Path) -> None:
    """promtool checks each expression as a rule. Grafana's variable is replaced by a range, as Grafana
    does."""
    expressions = [expr for dashboard in DASHBOARDS for expr in dashboard.expressions]
    rules = [
        {"record": f"panel:{number}", "expr": expr.replace("$__rate_interval", "5m")}
        for number, expr in enumerate(expressions)
    ]
    file = tmp_path / "panels.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    done = tools.promtool("check", "rules", str(file))
    assert done.returncode == 0, done.stderr
    assert len(expressions) > 50


# Each alert is tested


def _results(tools: Prometheus, alert: str, cases: Iterable[Case], folder: Path) -> tuple[int, str]:
    rules = only(alert, yaml.safe_load(RULES.read_text()))
    return results(tools, rules, [test for case in cases for test in case.tests()], folder)


@pytest.mark.real
@pytest.mark.parametrize("name", NAMES)
def test_alert_fires_only_in_its_cases(name: str, tools: Prometheus, tmp_path: Path) -> None:
    status, said = _results(tools, name, [case for case in CASES if case.alert == name], tmp_path)
    assert (status, "SUCCESS" in said) == (0, True), said


def test_each_alert_has_a_case() -> None:
    tested = {case.alert for case in CASES}
    leave(alerts=len(ALERTS), alerts_tested=len(tested))
    assert tested == {*NAMES}


@pytest.mark.real
@pytest.mark.parametrize("case", [CASES[0]], ids=lambda case: case.alert)
def test_wrong_case_fails(case: Case, tools: Prometheus, tmp_path: Path) -> None:
    """Wrong cases must fail, so that the tests of the alerts prove something."""
    both_quiet, both_fire = case._replace(fires=case.quiet), case._replace(quiet=case.fires)
    for wrong, words in (
        (both_quiet, "exp: {} 1E+00"),
        (both_fire, "exp: nil"),
        (both_fire, f'got: {{cluster="{BROKEN}", namespace="slurm"}} 1E+00, {{cluster="{WELL}"'),
    ):
        status, said = _results(tools, case.alert, [wrong], tmp_path)
        assert (status, " ".join(words.split()) in " ".join(said.split())) == (1, True), said


# Runbooks and objectives


def test_each_alert_has_a_unique_name_and_a_runbook() -> None:
    assert len({*NAMES}) == len(NAMES)
    runbooks = {path.stem for path in (CHECKOUT / "docs/troubleshooting/runbooks").glob("*.md")}
    assert runbooks - {"README"} == {*NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_runbook_has_each_section(name: str) -> None:
    page = (CHECKOUT / "docs/troubleshooting/runbooks" / f"{name}.md").read_text()
    assert page.startswith(f"# {name}\n")
    parts = re.split(r"^## (.+)$", page, flags=re.MULTILINE)
    assert parts[1::2] == HEADINGS
    assert all(len(text.split()) > 8 for text in parts[2::2])


@pytest.mark.parametrize(
    "page", sorted((CHECKOUT / "docs/troubleshooting/runbooks").glob("*.md")), ids=lambda path: path.stem
)
def test_links_of_a_runbook_have_targets(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_alert_links_to_its_runbook() -> None:
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        for rule in group["rules"]:
            if "alert" in rule:
                assert rule["annotations"]["runbook_url"] == f"{RUNBOOKS}{rule['alert']}.md"
                assert rule["labels"]["severity"] in ("critical", "warning", "info")


def test_thresholds_of_the_objectives_are_buckets() -> None:
    """Otherwise the histogram could not tell how many observations are within the threshold."""
    assert all(each.seconds in SECONDS for each in OBJECTIVES)
    histograms = {metric.name for metric in METRICS if metric.kind == "histogram"}
    assert {each.metric for each in OBJECTIVES} <= histograms


# Dashboards


@pytest.mark.parametrize("file", sorted((CHECKOUT / FOLDER).rglob("*.json")), ids=lambda path: path.stem)
def test_panels_do_not_overlap_and_have_unique_ids(file: Path) -> None:
    dashboard = json.loads(file.read_text())
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert taken.isdisjoint(cells), panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
        assert panel["title"]


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda each: each.name)
def test_dashboard_shows_the_chosen_clusters_and_namespaces(dashboard: Dashboard) -> None:
    variables = [each["name"] for each in dashboard.document()["templating"]["list"]]
    assert variables == ["datasource", "cluster", "namespace"]
    for expr in dashboard.expressions:
        ours = [name for name in metrics_in(expr) if name.startswith(("slurm_extender", "node_agent"))]
        assert expr.count('{cluster=~"$cluster",namespace=~"$namespace"') == len(ours), expr
        assert expr.count('cluster=~"$cluster"') >= 1, expr


# Names of metrics that expressions contain


@pytest.mark.parametrize(
    ("expr", "names"),
    [
        ("up", ["up"]),
        ('sum by (le, name) (rate(a_bucket{name=~"b.+",c="d"}[5m]))', ["a_bucket"]),
        ("time() - min by (waits_for) (a) > 3600 or vector(0)", ["a"]),
        ("a and on() b unless ignoring(c) d offset 5m", ["a", "b", "d"]),
        ("level:a:rate5m > 1.44e-1 and a == bool 1", ["level:a:rate5m", "a"]),
        ("max_over_time(a[1h])", ["a"]),
    ],
)
def test_metrics_of_an_expression_are_found(expr: str, names: list[str]) -> None:
    assert list(metrics_in(expr)) == names


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        ("sum by (a) (rate(a_total[5m])) > 0", 'sum by (a) (rate(a_total{x="y"}[5m])) > 0'),
        ('a{b="c{d}"} and on(a) b', 'a{x="y",b="c{d}"} and on(a) b{x="y"}'),
        (
            "min_over_time((a - time())[1d:1m] offset 5m)",
            'min_over_time((a{x="y"} - time())[1d:1m] offset 5m)',
        ),
        ('other{b="c"} / other', 'other{b="c"} / other'),
    ],
)
def test_each_metric_gets_more_matchers(expr: str, expected: str) -> None:
    assert selected(expr, lambda metric: "" if metric == "other" else 'x="y"') == expected
