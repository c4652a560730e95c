"""Outages and mistakes: a clear word where the person looks, and nothing is lost."""

from __future__ import annotations

import time
from pathlib import Path

import httpx
import pytest

from tests.end_to_end.people import People, eventually, pod

pytestmark = pytest.mark.real


def test_a_pod_without_requests_is_refused_at_apply(people: People) -> None:
    answer = people.apply(pod("p", cpu=None, memory=None))
    assert answer.returncode != 0
    assert "requests no cpu" in answer.stderr
    assert "requests no memory" in answer.stderr
    assert people.see("p") is None


def test_every_wrong_annotation_is_named_at_apply(people: People) -> None:
    answer = people.apply(pod("p", annotations={"timeout": "soon", "priority": "high"}))
    assert answer.returncode != 0
    assert "sunk.coreweave.com/timeout: 'soon'" in answer.stderr
    assert "sunk.coreweave.com/priority: 'high'" in answer.stderr


def test_what_only_slurm_can_refuse_is_told_on_the_pod(people: People) -> None:
    people.create("p", annotations={"partition": "nowhere"})
    eventually(lambda: people.condition("p").get("reason") == "Invalid", "condition")
    assert "partition" in people.condition("p")["message"].lower()
    eventually(lambda: "Invalid" in people.events("p"), "event")
    assert people.node_of("p") is None


def test_a_refused_pod_is_placed_once_it_is_mended(people: People) -> None:
    people.create("p", annotations={"partition": "nowhere"})
    eventually(lambda: people.condition("p").get("reason") == "Invalid", "condition")
    people.cluster.kubectl(
        "annotate", "pod", people.full("p"), "--overwrite", "sunk.coreweave.com/partition=main"
    )
    people.bound("p")


def test_pods_wait_out_a_slurmctld_that_is_down(people: People) -> None:
    people.create("before")
    node = people.bound("before")
    people.cluster.kill("slurmctld")
    try:
        people.create("during")
        eventually(lambda: people.condition("during").get("message"), "condition", 60)
        assert people.condition("during")["reason"] in ("SlurmUnavailable", "SlurmBusy")
        eventually(lambda: "Slurm" in people.ready()[1]["troubles"], "/readyz tells", 60)
        assert people.ready()[1]["troubles"] == ["Slurm"]
        assert people.node_of("before") == node
    finally:
        people.cluster.start("slurmctld")
    people.bound("during", within=60)
    assert people.node_of("before") == node
    eventually(lambda: not people.ready()[1]["troubles"], "trouble over", 60)


def test_a_pod_deleted_while_slurm_is_down_ends_its_job_later(people: People) -> None:
    people.create("p")
    people.bound("p")
    people.cluster.kill("slurmctld")
    try:
        people.delete("p")
        people.gone("p")
    finally:
        people.cluster.start("slurmctld")
    eventually(lambda: people.job_of("p") is None, "job ended", 60)


def test_a_pod_deleted_while_the_extender_is_down_ends_its_job_later(people: People) -> None:
    people.create("p")
    people.bound("p")
    people.cluster.kill("extender")
    people.delete("p")
    people.gone("p")
    people.cluster.start("extender")
    eventually(lambda: people.job_of("p") is None, "job ended")


def test_a_job_cancelled_while_the_extender_is_down_evicts_its_pod_later(people: People) -> None:
    people.create("p")
    people.bound("p")
    people.cluster.kill("extender")
    people.scancel("p")
    people.cluster.start("extender")
    people.gone("p")


def test_a_wrong_token_is_told_by_readyz_and_mended_without_a_restart(
    quiet: People, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("not-a-token")
    environment = {"SLURM_EXTENDER_SLURM_TOKEN_FILE": str(token)}
    quiet.cluster.start("extender", env=environment, wait=False)
    try:
        trouble = eventually(lambda: _trouble(quiet, "Slurm's token"), "/readyz and the log tell")
        assert "token" in trouble.lower()
        assert quiet.ready()[1]["troubles"] == ["Slurm's token"]
        assert quiet.ready()[0] == 503
        quiet.create("p")
        eventually(lambda: quiet.condition("p").get("reason") == "SlurmNeedsOperator", "condition")
        token.write_text(quiet.cluster.mint_token("root"))
        quiet.bound("p")
    finally:
        quiet.cluster.stop("extender")


def test_a_token_that_turns_bad_is_told_on_the_pods_that_wait(quiet: People, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(quiet.cluster.mint_token("root", 4))
    quiet.cluster.start("extender", env={"SLURM_EXTENDER_SLURM_TOKEN_FILE": str(token)})
    try:
        time.sleep(5)  # a token expires by the clock, and there is only one
        quiet.create("p")
        eventually(lambda: quiet.condition("p").get("reason") == "SlurmNeedsOperator", "condition")
        assert "expired" in quiet.condition("p")["message"]
        token.write_text(quiet.cluster.mint_token("root"))
        quiet.bound("p", within=40)
    finally:
        quiet.cluster.stop("extender")


def test_a_malformed_request_gets_an_answer_that_names_the_fault(people: People) -> None:
    verbs = f"http://127.0.0.1:{people.cluster.ports['extender-scheduler']}/scheduler"
    broken = httpx.post(f"{verbs}/filter", content=b"{", headers={"content-type": "application/json"})
    assert broken.status_code == 400
    assert "malformed" in broken.json()["Error"]
    lacking = httpx.post(f"{verbs}/bind", json={"PodName": "p"})
    assert lacking.status_code == 400
    assert "PodUID" in lacking.json()["Error"]
    misconfigured = httpx.post(f"{verbs}/filter", json={"Pod": pod("p"), "Nodes": {"items": []}})
    assert "nodeCacheCapable" in misconfigured.json()["Error"]


def _trouble(people: People, part: str) -> str:
    try:
        return people.trouble(part)
    except httpx.HTTPError:
        return ""
