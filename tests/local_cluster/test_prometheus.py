"""Tests of Debian's Prometheus: the program serves on this machine, reports errors, and ends at the end
of the block."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from deploy.local.errors import ClusterError
from deploy.local.prometheus import Prometheus, prometheus

pytestmark = pytest.mark.real

GOOD = "groups: [{name: a, rules: [{record: b, expr: vector(1)}]}]"
WRONG = "groups: [{name: a, rules: [{record: b, expr: 'vector('}]}]"


@pytest.fixture(scope="module")
def tools() -> Prometheus:
    return prometheus()


def rules(folder: Path, text: str) -> Path:
    file = folder / "rules.yaml"
    file.write_text(text)
    return file


def test_prometheus_serves_until_its_context_ends(tools: Prometheus, tmp_path: Path) -> None:
    with tools.serving(tmp_path, rules(tmp_path, GOOD), ["127.0.0.1:1"]) as url:
        told = httpx.get(f"{url}/api/v1/rules").raise_for_status().json()
        assert told["data"]["groups"][0]["rules"][0]["name"] == "b"
    with pytest.raises(httpx.ConnectError):
        httpx.get(url)


def test_wrong_rules_are_an_error(tools: Prometheus, tmp_path: Path) -> None:
    file = rules(tmp_path, WRONG)
    with (
        pytest.raises(ClusterError, match="does not serve"),
        tools.serving(tmp_path, file, ["127.0.0.1:1"]),
    ):
        pass
    assert tools.promtool("check", "rules", str(file)).returncode == 1
