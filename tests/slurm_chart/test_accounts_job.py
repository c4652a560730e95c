"""Tests of the Job `slurm-accounts`: a wrong list of accounts fails `helm upgrade` at once, and the
error message names the Job."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from deploy.charts.slurm_pages import CHART
from deploy.local.chart import Values
from deploy.local.cluster import Cluster
from deploy.local.errors import ClusterError
from tests.meanwhile import meanwhile
from tests.slurm_chart.rendering import NAMESPACE, run_helm

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

WRONG: Values = {"accounts": [{"name": "research", "qos": ["hihg"]}]}
WRONG_STATUS = 2
"""Exit status of `slurm-cluster accounts apply` if the list is wrong
(tests/slurm_cluster/test_accounts_applied.py)."""


def test_helm_upgrade_fails_at_once_on_a_wrong_list_of_accounts(release_cluster: Cluster) -> None:
    """No Pod runs in this cluster, so the test writes the final status into the Pods of Helm's hooks."""
    where = ("--namespace", NAMESPACE, "--kubeconfig", str(release_cluster.kubeconfig))
    install = ("upgrade", "--install", "slurm", str(CHART), *where, "--timeout=100s")
    try:
        with hooks_end(release_cluster), pytest.raises(ClusterError) as failed:
            run_helm(*install, values={"accounts": WRONG})
        assert "Job/slurm/slurm-accounts not ready. status: Failed" in str(failed.value)
        job = json.loads(release_cluster.kubectl(*_GET, "job/slurm-accounts").stdout)
        reasons = {each["type"]: each["reason"] for each in job["status"]["conditions"]}
        assert reasons["Failed"] == "PodFailurePolicy"
    finally:
        run_helm("uninstall", "slurm", *where, "--no-hooks", "--ignore-not-found")
        release_cluster.kubectl("delete", "pvc,job,pod", "--all", "-n", NAMESPACE, "--wait=false")


_GET = ("get", "-n", NAMESPACE, "-o", "json")


@contextmanager
def hooks_end(cluster: Cluster) -> Iterator[None]:

    def run_hooks() -> None:
        pods = json.loads(cluster.kubectl(*_GET, "pods").stdout)["items"]
        for pod in [each for each in pods if _is_of_a_hook(each)]:
            status = json.dumps({"status": _end(pod)})
            patch = ("patch", "pod", pod["metadata"]["name"], "-n", NAMESPACE, "-p", status)
            with suppress(ClusterError):  # Helm may have deleted the Pod
                cluster.kubectl(*patch, "--subresource=status", "--type=merge")

    with meanwhile(run_hooks, 0.3):
        yield


def _is_of_a_hook(pod: dict[str, Any]) -> bool:
    owners = {each["kind"] for each in pod["metadata"].get("ownerReferences", ())}
    return "Job" in owners and pod["status"]["phase"] not in ("Succeeded", "Failed")


def _end(pod: dict[str, Any]) -> dict[str, Any]:
    """Returns the status of an ended Pod: Failed for `slurm-accounts`, otherwise Succeeded."""
    fails = pod["metadata"]["labels"].get("app.kubernetes.io/component") == "accounts"
    if not fails:
        return {"phase": "Succeeded"}
    ended = {"terminated": {"exitCode": WRONG_STATUS, "reason": "Error"}}
    own = {"name": "accounts", "image": "", "imageID": "", "ready": False, "restartCount": 0}
    return {"phase": "Failed", "containerStatuses": [{**own, "state": ended}]}
