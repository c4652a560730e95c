"""Tests of an idle cluster: the extender reports no problem, and does not list objects again."""

import json
import re
import time

import pytest

from deploy.local.cluster import Cluster
from deploy.local.spec import DEFAULT_RELEASE
from tests.end_to_end.actors import fetch
from tests.eventually import eventually

pytestmark = pytest.mark.real

_PAUSE_S = 0.5


def problems(cluster: Cluster) -> list[str]:
    """Returns the degraded components that /readyz names."""
    url = f"http://127.0.0.1:{cluster.ports['extender-health']}/readyz"
    return list(fetch(url).json()["problems"])


def lists_of_events(cluster: Cluster) -> int:
    """Returns how many times kube-apiserver has answered a list of Events."""
    metrics = cluster.kubectl("get", "--raw", "/metrics").stdout
    lines = re.findall(r"^apiserver_request_total\{(.*)\} (\d+)$", metrics, re.MULTILINE)
    return sum(int(n) for of, n in lines if 'resource="events"' in of and 'verb="LIST"' in of)


def log_of_extender(cluster: Cluster) -> list[dict[str, str]]:
    lines = (cluster.logs / "extender.log").read_text().splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("cluster", [DEFAULT_RELEASE], indirect=True)
@pytest.mark.parametrize("seconds", [130, pytest.param(300, marks=pytest.mark.long)])
def test_an_idle_cluster_has_no_problem(cluster: Cluster, seconds: int) -> None:
    """A watch of Events may be silent for long, because kube-apiserver sends no bookmarks for Events.
    The extender must not report this silence as a problem."""
    cluster.restart("extender")
    eventually(lambda: problems(cluster) == [], "no problem")
    logged, lists = len(log_of_extender(cluster)), lists_of_events(cluster)
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        assert problems(cluster) == []
        time.sleep(_PAUSE_S)
    assert lists_of_events(cluster) > lists, "the watch was not silent for long enough"
    events = {line["event"] for line in log_of_extender(cluster)[logged:]}
    assert not events & {"watch expired, listing again", "problem"}
