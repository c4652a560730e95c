"""Tests of `slurm-extender check` on real clusters: the check passes, or the check fails and names the
cause."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.local.cluster import Cluster
from deploy.local.components import accepts_connections
from tests.cluster_fixture import deleted
from tests.eventually import eventually

pytestmark = pytest.mark.real

STEPS = ["gated", "placeholder", "bound", "running", "ended", "refused"]
POD = "slurm-extender-check-"


def command(*options: str) -> list[str]:
    return [sys.executable, "-m", "extender", "check", "--output", "json", *options]


def environment(cluster: Cluster, **changed: str) -> Mapping[str, str]:
    own = {"SLURM_EXTENDER_KUBECONFIG": str(cluster.kubeconfig)}
    settings = {f"SLURM_EXTENDER_{name}": value for name, value in changed.items()}
    return {**os.environ, **cluster.extender_environment, **own, **settings}


def check(cluster: Cluster, *options: str, **changed: str) -> tuple[int, dict[str, Any]]:
    done = subprocess.run(
        command(*options),
        env=environment(cluster, **changed),
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.stdout, done.stderr
    steps = {each["check"]: each for each in json.loads(done.stdout)["results"]}
    assert list(steps) == STEPS
    return done.returncode, steps


def verdicts(steps: Mapping[str, Any]) -> list[str]:
    return [each["verdict"] for each in steps.values()]


def left(cluster: Cluster) -> list[str]:
    """Returns the Pods and the live jobs that checks have left."""
    pods = cluster.kubectl("get", "pods", "-o", "name").stdout.split()
    jobs = cluster.run_slurm("squeue", "-h", "-t", "PENDING,RUNNING", "-o", "%j").stdout.split()
    return [name for name in (*pods, *jobs) if POD in name]


@pytest.fixture(autouse=True)
def _leaves_nothing(cluster: Cluster) -> Iterator[None]:
    if not cluster.is_running("extender"):
        cluster.start("extender")
    yield
    eventually(lambda: not left(cluster), "nothing left of the check")


@contextmanager
def extender_with(cluster: Cluster, **changed: str) -> Iterator[None]:
    """Runs the extender with changed settings until the block ends."""
    settings = {f"SLURM_EXTENDER_{name}": value for name, value in changed.items()}
    cluster.stop("extender")
    cluster.start("extender", env=settings, wait=False)
    port = cluster.ports["extender-admission"]
    try:
        eventually(lambda: accepts_connections(port), "its webhooks answer")
        yield
    finally:
        cluster.restart("extender")


@pytest.mark.parametrize(
    "options", [(), ("--device", "nvidia.com/gpu=1", "--annotation", "partition=main", "--cpu", "500m")]
)
def test_check_passes_on_a_healthy_cluster(cluster: Cluster, options: tuple[str, ...]) -> None:
    status, steps = check(cluster, *options)
    assert verdicts(steps) == ["PASS"] * len(STEPS), steps
    assert status == 0
    assert "is RUNNING on node-" in steps["running"]["found"]


def test_check_passes_with_a_plain_user_token_and_few_rights(cluster: Cluster, tmp_path: Path) -> None:
    token, kubeconfig = tmp_path / "token", tmp_path / "kubeconfig"
    token.write_text(cluster.mint_token("alice"))
    verbs = "--verb=create,get,delete"
    cluster.kubectl("create", "serviceaccount", "checker")
    cluster.kubectl("create", "role", "checker", verbs, "--resource=pods")
    cluster.kubectl(
        "create", "rolebinding", "checker", "--role=checker", "--serviceaccount=default:checker"
    )
    given = yaml.safe_load(cluster.kubeconfig.read_text())
    given["users"][0]["user"] = {"token": cluster.kubectl("create", "token", "checker").stdout.strip()}
    kubeconfig.write_text(yaml.safe_dump(given))
    try:
        settings = {"SLURM_TOKEN_FILE": str(token), "KUBECONFIG": str(kubeconfig)}
        status, steps = check(cluster, **settings)
        assert (status, verdicts(steps)) == (0, ["PASS"] * len(STEPS)), steps
    finally:
        for kind in ("rolebinding", "role", "serviceaccount"):
            cluster.kubectl("delete", kind, "checker")


def test_text_output_has_one_line_per_step(cluster: Cluster) -> None:
    asked = [*command()[:-2]]
    done = subprocess.run(asked, env=environment(cluster), text=True, capture_output=True, check=True)
    lines = done.stdout.splitlines()
    assert [line.split()[:2] for line in lines[:-1]] == [["PASS", step] for step in STEPS]
    assert lines[-1] == "6 PASS"


def test_check_fails_without_an_extender(cluster: Cluster) -> None:
    cluster.stop("extender")
    status, steps = check(cluster, "--timeout", "10")
    assert status == 1
    assert verdicts(steps) == ["FAIL", *["SKIPPED"] * 4, "FAIL"]
    assert 'failed calling webhook "pods.slurm-extender.io"' in steps["gated"]["found"]
    assert "that the extender runs" in steps["gated"]["fix"]


def test_check_fails_without_a_webhook(cluster: Cluster) -> None:
    with deleted(cluster, "mutatingwebhookconfiguration", "slurm-extender"):
        status, steps = check(cluster, "--timeout", "10")
    assert status == 1
    assert verdicts(steps) == ["FAIL", *["SKIPPED"] * 4, "FAIL"]
    assert "without the extender's gate" in steps["gated"]["found"]
    assert "should have been refused" in steps["refused"]["found"]


def test_check_fails_with_an_expired_token(cluster: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(cluster.mint_token("root", -60))
    with extender_with(cluster, SLURM_TOKEN_FILE=str(file)):
        status, steps = check(cluster, "--timeout", "8")
    assert status == 1
    assert verdicts(steps) == ["PASS", "FAIL", "SKIPPED", "SKIPPED", "SKIPPED", "PASS"], steps
    assert "not within 8 s" in steps["placeholder"]["found"]
    assert "slurm-extender says" in steps["placeholder"]["found"]
    status, steps = check(cluster, "--timeout", "5", SLURM_TOKEN_FILE=str(file))
    assert verdicts(steps)[:2] == ["PASS", "FAIL"]
    assert "expired" in steps["placeholder"]["found"]


def test_check_fails_for_an_unknown_partition(cluster: Cluster) -> None:
    status, steps = check(cluster, "--annotation", "partition=nowhere", "--timeout", "5")
    assert (status, verdicts(steps)[:2]) == (1, ["PASS", "FAIL"])
    assert "partition" in steps["placeholder"]["found"]


def test_check_fails_if_the_policy_admits_no_pod(cluster: Cluster) -> None:
    before = cluster.policy_file.read_text()
    cluster.policy_file.write_text("preset: restricted\n")
    try:
        eventually(lambda: check(cluster)[1]["gated"]["verdict"] == "FAIL", "the policy is read")
        _, steps = check(cluster)
        assert 'slurm-extender.io" denied the request' in steps["gated"]["found"]
    finally:
        cluster.policy_file.write_text(before)
        eventually(lambda: check(cluster)[0] == 0, "the policy is read again")


def test_terminated_check_leaves_no_pod(cluster: Cluster) -> None:
    waits = ("--annotation", "partition=nowhere", "--timeout", "60")
    with subprocess.Popen(
        command(*waits), env=environment(cluster), stderr=subprocess.PIPE, text=True
    ) as running:
        eventually(lambda: left(cluster), "it waits")
        running.send_signal(signal.SIGTERM)
        _, told = running.communicate(timeout=30)
    assert running.returncode == 1
    assert "ended by a signal" in told
    assert not [name for name in left(cluster) if name.startswith("pod/")]
