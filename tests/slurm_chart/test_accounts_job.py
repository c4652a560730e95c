"""The Job `slurm-accounts`: its two containers on a real slurmdbd; and a list that is wrong fails `helm
upgrade` at once, with words that say where to look."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from deploy.charts.slurm_pages import CHART
from deploy.local.chart import Values
from deploy.local.cluster import Cluster
from deploy.local.errors import ClusterError
from deploy.local.layout import CHECKOUT
from deploy.local.spec import ClusterSpec
from tests.slurm_chart.rendering import NAMESPACE, rendered, run_helm
from tests.slurm_cluster.slurm import on_path

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

RIGHT: Values = {"qos": [{"name": "high", "priority": 100}], "accounts": [{"name": "research"}]}
WRONG: Values = {"accounts": [{"name": "research", "qos": ["hihg"]}]}
WRONG_STATUS = 2


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    spec = ClusterSpec(nodes=1, kubernetes=False, extender=False, accounting=True)
    with (
        Cluster.up(spec, tmp_path_factory.mktemp("slurm")) as running,
        on_path(running.directory / "bin"),
    ):
        yield running


def run(accounts: Values, folder: Path) -> list[tuple[str, int, str]]:
    """Runs the Job's containers one after the other until one fails: name, exit status, words."""
    chart = rendered({"accounts": accounts})
    found = chart.find("ConfigMap", "slurm-accounts")["data"]
    for name, text in found.items():
        (folder / name).write_text(text)
    spec = chart.find("Job", "slurm-accounts")["spec"]["template"]["spec"]
    containers = [*spec["initContainers"], *spec["containers"]]
    went: list[tuple[str, int, str]] = []
    for each in (one for one in containers if one["command"][0] == "slurm-cluster"):
        argv = [*each["command"], *each.get("args", ())][1:]
        argv = [word.replace("/etc/slurm-accounts", str(folder)) for word in argv]
        done = subprocess.run(
            [sys.executable, "-m", "slurm_cluster", *argv],
            cwd=CHECKOUT,
            capture_output=True,
            text=True,
            check=False,
        )
        went.append((each["name"], done.returncode, done.stdout))
        if done.returncode != 0:
            break
    return went


def test_a_right_list_is_shown_and_then_applied(slurm: Cluster, tmp_path: Path) -> None:
    (plan, planned, shown), (apply, applied, _) = run(RIGHT, tmp_path)
    assert (plan, planned, apply, applied) == ("plan", 0, "apply", 0)
    assert "+ qos high" in shown
    assert "high" in slurm.run_slurm("sacctmgr", "-nP", "show", "qos", "format=name").stdout
    assert [status for _, status, _ in run(RIGHT, tmp_path)] == [0, 0]


def test_a_wrong_list_ends_with_the_status_that_fails_the_job(slurm: Cluster, tmp_path: Path) -> None:
    ((name, status, words),) = run(WRONG, tmp_path)
    assert (name, status) == ("plan", WRONG_STATUS)
    assert words.splitlines() == [
        "wrong: account research may use the QOS hihg, which there is not",
        "nothing was changed",
    ]
    assert "hihg" not in slurm.run_slurm("sacctmgr", "-nP", "show", "qos", "format=name").stdout


def test_helm_says_so_at_once(release_cluster: Cluster) -> None:
    """Pods of hooks end as theirs would: nothing runs them there."""
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
    over = threading.Event()

    def run_hooks() -> None:
        while not over.wait(0.3):
            pods = json.loads(cluster.kubectl(*_GET, "pods").stdout)["items"]
            for pod in [each for each in pods if _is_of_a_hook(each)]:
                status = json.dumps({"status": _end(pod)})
                patch = ("patch", "pod", pod["metadata"]["name"], "-n", NAMESPACE, "-p", status)
                cluster.kubectl(*patch, "--subresource=status", "--type=merge")

    thread = threading.Thread(target=run_hooks)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _is_of_a_hook(pod: dict[str, Any]) -> bool:
    owners = {each["kind"] for each in pod["metadata"].get("ownerReferences", ())}
    return "Job" in owners and pod["status"]["phase"] not in ("Succeeded", "Failed")


def _end(pod: dict[str, Any]) -> dict[str, Any]:
    """`slurm-accounts` fails as the tests above see it; others do not."""
    fails = pod["metadata"]["labels"].get("app.kubernetes.io/component") == "accounts"
    if not fails:
        return {"phase": "Succeeded"}
    ended = {"terminated": {"exitCode": WRONG_STATUS, "reason": "Error"}}
    plan = {"name": "plan", "image": "", "imageID": "", "ready": False, "restartCount": 0}
    return {"phase": "Failed", "initContainerStatuses": [{**plan, "state": ended}]}
