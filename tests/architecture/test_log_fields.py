"""Tests of log lines: a line about a single Pod or job names the Pod or job, and always in the same
fields."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import extender
import kubernetes_client
import service
import slurm_cluster

LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}
OF_NO_POD = {
    # about the program
    "starting",
    "an environment variable is no setting",
    "a part of the program failed: the program ends",
    "error at the end of leadership",
    "this replica leads",
    "another replica leads: this one stops",
    "problem",
    "problem ended",
    # about a Node
    "kubelet rejects Pods",
    "invalid notes on a Node",
    "note on a Node dropped",
    # about the program's listeners, which any client can reach
    "certificate loaded",
    "webhook certificate created",
    "no connection can be accepted",
    "a request failed in an unforeseen way",
    # about many Pods and jobs at once
    "Pods listed",
    "jobs read",
    "recovered",
    "conditions of waiting Pods not written",
    "not audited",
    "watch expired, listing again",
    "Events are dropped: too many wait to be made",
    # about a node, a pool or the policy
    "assigned",
    "rolled back",
    "deleted in Slurm",
    "a pool's Node is gone",
    "pools",
    "CPU counts differ",
    "drained",
    "drain taken back",
    "waits for the end of a reservation",
    # about slurmctld's configuration
    "plan",
    "configuration",
    "no Events are created",
    "an Event was not made",
    # about Slurm's topology
    "labels of Nodes",
    "topology written",
    "policy",
    "the policy lets no Pod run: set SLURM_EXTENDER_POLICY_FILE (docs/concepts/policy.md)",
}
PASSED_ON = {"what", "self._event", "self.problem is None"}
"""Log calls whose first argument is no text. `what`: findings of `audit.auditor`, with their own fields
`pod` and `job`. `self._event`: events of `RateLimitedLog`. `self.problem is None`: a callback of
`CurrentFile` without a log line."""


@cache
def logged() -> Sequence[tuple[str, ast.Call]]:
    """Returns the text and the syntax node of each log call."""
    return tuple(_logged())


def _logged() -> Iterator[tuple[str, ast.Call]]:
    packages = (
        Path(package.__file__ or "").parent
        for package in (extender, kubernetes_client, service, slurm_cluster)
    )
    for file in sorted(file for package in packages for file in package.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and _logs(node.func):
                text = node.args[0]
                yield str(text.value) if isinstance(text, ast.Constant) else ast.unparse(text), node


def _logs(function: ast.expr) -> bool:
    if isinstance(function, ast.Attribute):
        return ast.unparse(function.value) == "log" and function.attr in LEVELS
    return isinstance(function, ast.Name) and function.id == "tell"


def _names_its_pod(call: ast.Call) -> bool:
    """Returns True if the log call gets the fields that `about` returns, from a call of `about` or from
    a variable."""
    passed = [ast.unparse(each.value) for each in call.keywords if each.arg is None]
    return any(
        each.startswith("about(") or each in ("named", "about_it", "about or {}") for each in passed
    )


def test_log_lines_about_one_pod_name_the_pod_and_its_job() -> None:
    nameless = {text for text, call in logged() if not _names_its_pod(call)}
    assert nameless - PASSED_ON == OF_NO_POD


def test_log_lines_name_pods_and_jobs_only_in_the_common_fields() -> None:
    own = {
        text for text, call in logged() if {each.arg for each in call.keywords} & {"pod", "uid", "job"}
    }
    assert own == {"what"}
