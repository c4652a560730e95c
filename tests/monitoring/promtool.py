"""Runs promtool, which tests the rules of Prometheus."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from deploy.local.prometheus import Prometheus

Rules = dict[str, Any]


def only(alert: str, rules: Rules) -> Rules:
    """Returns the rules of an alert, together with the alert's recording rules. Fewer rules make the
    test faster, because promtool evaluates every given rule."""
    (expr,) = (rule["expr"] for rule in _all(rules) if rule.get("alert") == alert)

    def is_wanted(rule: dict[str, Any]) -> bool:
        return rule.get("alert") == alert or rule.get("record", alert) in expr

    groups = [
        {"name": group["name"], "rules": [rule for rule in group["rules"] if is_wanted(rule)]}
        for group in rules["groups"]
    ]
    return {"groups": [group for group in groups if group["rules"]]}


def _all(rules: Rules) -> list[dict[str, Any]]:
    return [rule for group in rules["groups"] for rule in group["rules"]]


def results(
    tools: Prometheus, rules: Rules, tests: list[dict[str, Any]], folder: Path
) -> tuple[int, str]:
    """Runs the tests with promtool. Returns promtool's exit status and output."""
    (folder / "rules.yaml").write_text(yaml.safe_dump(rules))
    document = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests}
    (folder / "tests.yaml").write_text(yaml.safe_dump(document))
    done = tools.promtool("test", "rules", str(folder / "tests.yaml"))
    return done.returncode, done.stdout + done.stderr
