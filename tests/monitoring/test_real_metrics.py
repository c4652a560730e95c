"""Tests with the metrics of real programs. Each metric in a rule or dashboard exists, and a real
Prometheus fires the alerts if a fault occurs."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
import yaml

from deploy.local.layout import CHECKOUT
from deploy.local.prometheus import Prometheus
from deploy.monitoring.dashboards import DASHBOARDS
from deploy.monitoring.expressions import metrics_in
from deploy.monitoring.rule import Recording, document
from deploy.monitoring.rules import GROUPS
from extender.telemetry.catalogue import METRICS
from node_agent import metrics as node_agent
from slurm_client.model import JobSpec
from slurm_client.rest.client import SlurmRest
from tests.chart.figures import leave
from tests.end_to_end.actors import Actors, fetch
from tests.eventually import eventually, eventually_not
from wellknown.job_key import JobIdRange

pytestmark = pytest.mark.real

_OF_ALL = ("process_", "http_")
"""Prefixes of metrics that libraries define."""
_SLURMS = ("jobs", "nodes", "partitions", "scheduler")
_DCGM_EXPORTERS = {"DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_PROF_GR_ENGINE_ACTIVE"}
"""Metrics of dcgm-exporter, which cannot run without a GPU. Both names are in dcgm-exporter's file of
default metrics."""
_SUFFIXES = {"histogram": ("_bucket", "_count", "_sum"), "summary": ("_count", "_sum")}


def exposed(page: str) -> dict[str, str]:
    """Returns the metrics on a page of metrics: the type of each metric, by name."""
    return dict(re.findall(r"^# TYPE (\S+) (\S+)$", page, re.MULTILINE))


def series(kinds: dict[str, str]) -> set[str]:
    """Returns all names of series of these metrics, such as the `_count` of a histogram."""
    return {name + suffix for name, kind in kinds.items() for suffix in ("", *_SUFFIXES.get(kind, ()))}


def extenders_page(actors: Actors) -> str:
    return fetch(f"http://127.0.0.1:{actors.cluster.ports['extender-metrics']}/metrics").text


def job_of(actors: Actors, name: str) -> int:
    job = actors.job_of(name)
    assert job is not None
    return job.id


# Which metrics exist


def test_extender_exposes_exactly_the_metrics_of_its_table(actors: Actors) -> None:
    actors.create("a")
    actors.bound("a")
    kinds = {
        name: kind
        for name, kind in exposed(extenders_page(actors)).items()
        if not name.startswith(_OF_ALL) and not name.endswith("_created")
    }
    assert kinds == {metric.name: metric.kind for metric in METRICS}


def slurmctlds_pages(actors: Actors) -> Iterable[str]:
    for part in _SLURMS:
        yield (
            fetch(f"http://127.0.0.1:{actors.cluster.ports['slurmctld']}/metrics/{part}")
            .raise_for_status()
            .text
        )


def test_each_metric_of_rules_and_dashboards_exists_in_a_real_program(actors: Actors) -> None:
    """First, the webhook must reject a Pod: kube-apiserver has metrics of a webhook only after a call,
    and a count of rejections only after a rejection."""
    with pytest.raises(httpx.HTTPStatusError):
        actors.create("wrong", annotations={"timeout": "soon"})
    kube_apiservers = actors.cluster.kubectl("get", "--raw", "/metrics").stdout
    rejected = re.findall(
        r"^apiserver_admission_webhook_rejection_count{(.+)}", kube_apiservers, re.MULTILINE
    )
    assert re.search(r'error_type="no_error",name=".+\.slurm-extender\.io"', "\n".join(rejected))
    known = series(exposed(extenders_page(actors)))
    known |= series(exposed(kube_apiservers))
    known |= {name for page in slurmctlds_pages(actors) for name in exposed(page)}
    known |= series({metric.name: metric.kind for metric in node_agent.METRICS})
    known |= _DCGM_EXPORTERS
    rules = [rule for group in GROUPS for rule in group.rules]
    known |= {rule.name for rule in rules if isinstance(rule, Recording)}
    asked = {
        *(name for rule in rules for name in metrics_in(rule.expr)),
        *(name for each in DASHBOARDS for expr in each.expressions for name in metrics_in(expr)),
    }
    unknown = sorted(asked - known)
    leave(dashboards_unknown_metrics=len(unknown))
    assert unknown == []
    assert len(asked) > 60


def test_parsed_log_of_slurmctld_has_the_fields_of_the_extender_log(actors: Actors) -> None:
    """The expression that parses slurmctld's log is from docs/reference/logs.md."""
    conf = (CHECKOUT / "deploy/monitoring/log-parser.conf").read_text()
    (regex,) = re.findall(r"^ +Regex +(.+)$", conf, re.MULTILINE)
    parser = re.compile(regex.replace("(?<", "(?P<"))
    lines = (actors.cluster.logs / "slurmctld.log").read_text().splitlines()
    parsed = [parser.match(line) for line in lines]
    assert [line for line, found in zip(lines, parsed, strict=True) if found is None] == []
    found = [each.groupdict() for each in parsed if each is not None]
    assert {each["level"] for each in found} <= {None, "fatal", "error", "warning", "debug"}
    assert all(re.fullmatch(r"\d{4}-.+T.+\.\d{3}[+-]\d\d:\d\d", each["timestamp"]) for each in found)
    jobs = {each["job"] for each in found if each["job"]}
    assert str(job_of(actors, "a")) in jobs


# Alerts during faults


class Alerts:
    """Firing alerts in a real Prometheus. Each alert fires if the condition holds for a second."""

    def __init__(self, url: str) -> None:
        self._url = url

    def firing(self, name: str) -> dict[str, Any]:
        """Returns the alert of this name if the alert fires, otherwise an empty dict."""
        answer = fetch(f"{self._url}/api/v1/alerts").raise_for_status().json()
        alerts = [each for each in answer["data"]["alerts"] if each["state"] == "firing"]
        return next((each for each in alerts if each["labels"]["alertname"] == name), {})

    def fires(self, name: str, **labels: str) -> None:
        """Waits until the alert fires, and checks the labels and annotations."""
        found = eventually(lambda: self.firing(name), f"{name} fires")
        assert labels.items() <= found["labels"].items()
        words = " ".join(found["annotations"].values())
        assert "{{" not in words
        assert "error" not in found["annotations"]["summary"]
        assert "no value" not in words


def quick_rules(folder: Path) -> Path:
    """Writes the rules to a file, but with `for: 1s` in each alert."""
    rules = document(GROUPS)
    for group in rules["groups"]:
        for rule in group["rules"]:
            if "alert" in rule:
                rule["for"] = "1s"
    file = folder / "rules.yaml"
    file.write_text(yaml.safe_dump(rules))
    return file


def old_token(actors: Actors) -> str:
    """Returns a valid token with only a tenth of the lifetime left."""
    key, now = actors.cluster.directory / "slurm/etc/jwt_hs256.key", int(time.time())
    return jwt.encode({"exp": now + 600, "iat": now - 5400, "sun": "root"}, key.read_bytes(), "HS256")


async def submit_by_hand(actors: Actors) -> None:
    """Submits a native job. The job's author has chosen an id from the placeholders' range."""
    client = SlurmRest(actors.cluster.slurmrestd_url, actors.cluster.token_file)
    try:
        await client.submit(JobSpec("by-hand", 1, 10, priority=0), JobIdRange().first)
    finally:
        await client.aclose()


def test_prometheus_fires_on_faults(actors: Actors, tools: Prometheus, tmp_path: Path) -> None:
    cluster = actors.cluster
    target = f"127.0.0.1:{cluster.ports['extender-metrics']}"
    names = [f"p-{number}" for number in range(4)]
    for name in names:
        actors.create(name)
    with tools.serving(tmp_path, quick_rules(tmp_path), [target]) as url:
        alerts = Alerts(url)
        faults: list[tuple[str, dict[str, str], Callable[[], object]]] = [
            (
                "SlurmExtenderTokenNearItsEnd",
                {},
                lambda: cluster.token_file.write_text(old_token(actors)),
            ),
            (
                "SlurmExtenderAuditDrift",
                {"kind": "ForeignKey"},
                lambda: asyncio.run(submit_by_hand(actors)),
            ),
            (
                "SlurmExtenderEvictionsThrottled",
                {},
                lambda: cluster.run_slurm("scancel", *(str(job_of(actors, name)) for name in names)),
            ),
            (
                "SlurmExtenderSlurmUnreachable",
                {"component": "Slurm"},
                lambda: cluster.kill("slurmrestd"),
            ),
            ("SlurmExtenderNoLeader", {"severity": "critical"}, lambda: cluster.kill("extender")),
        ]
        eventually_not(lambda: alerts.firing("SlurmExtenderNoLeader"), "it was read")
        for name in names:
            actors.bound(name)
        for name, labels, fault in faults:
            assert not alerts.firing(name)
            fault()
            alerts.fires(name, **labels)
