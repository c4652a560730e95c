"""Tests of outages and of wrong input: the person in charge gets a clear message, and no Pod is lost."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import httpx
import pytest

from tests.directory_away import directory_away
from tests.end_to_end.actors import Actors, pod
from tests.eventually import eventually

pytestmark = pytest.mark.real


def test_a_pod_without_requests_is_refused_at_apply(actors: Actors) -> None:
    answer = actors.apply(pod("p", cpu=None, memory=None))
    assert answer.returncode != 0
    assert "requests no cpu" in answer.stderr
    assert "requests no memory" in answer.stderr
    assert actors.see("p") is None


def test_every_wrong_annotation_is_named_at_apply(actors: Actors) -> None:
    answer = actors.apply(pod("p", annotations={"timeout": "soon", "priority": "high"}))
    assert answer.returncode != 0
    assert 'sunk.coreweave.com/timeout: "soon"' in answer.stderr
    assert 'sunk.coreweave.com/priority: "high"' in answer.stderr


def test_rejection_by_slurm_is_reported_on_the_pod(actors: Actors) -> None:
    actors.create("p", annotations={"partition": "nowhere"})
    eventually(lambda: actors.condition("p").get("reason") == "Invalid", "condition")
    assert "partition" in actors.condition("p")["message"].lower()
    eventually(lambda: "Invalid" in actors.events("p"), "event")
    assert actors.node_of("p") is None


def test_rejected_pod_is_placed_after_its_correction(actors: Actors) -> None:
    actors.create("p", annotations={"partition": "nowhere"})
    eventually(lambda: actors.condition("p").get("reason") == "Invalid", "condition")
    actors.cluster.kubectl(
        "annotate", "pod", actors.full("p"), "--overwrite", "sunk.coreweave.com/partition=main"
    )
    actors.bound("p")


def test_pods_wait_during_an_outage_of_the_user_directory(brief: Actors) -> None:
    """Without the directory, a user id has no name. Slurm 24.11 holds the job of such a user, and Slurm
    26.05 runs the job."""
    asked = {"user": {"user-id": "2001"}, "group": {"user-id": "2001", "group-id": "2001"}}
    is_held = brief.cluster.spec.release == "24.11"
    with directory_away(brief.cluster, ["alice"]):
        for name, annotations in asked.items():
            brief.create(name, annotations=annotations)
        for name in asked:
            if not is_held:
                brief.bound(name)
                continue
            eventually(partial(_is_refused, brief, name), "condition", 30)
            words = "slurmctld does not know user 2001 (is sssd running on its host?); the extender "
            assert brief.condition(name)["message"].startswith(words)
    for name in asked:
        brief.bound(name, within=60)


def test_pods_wait_during_an_outage_of_slurmctld(actors: Actors) -> None:
    actors.create("before")
    node = actors.bound("before")
    actors.cluster.kill("slurmctld")
    try:
        actors.create("during")
        eventually(lambda: actors.condition("during").get("message"), "condition", 60)
        assert actors.condition("during")["reason"] in ("SlurmUnavailable", "SlurmBusy")
        eventually(lambda: "Slurm" in actors.ready()[1]["problems"], "/readyz tells", 60)
        assert actors.ready()[1]["problems"] == ["Slurm"]
        assert actors.node_of("before") == node
    finally:
        actors.cluster.start("slurmctld")
    actors.bound("during", within=60)
    assert actors.node_of("before") == node
    eventually(lambda: not actors.ready()[1]["problems"], "problem ended", 60)


def test_a_pod_deleted_while_slurm_is_down_ends_its_job_later(actors: Actors) -> None:
    actors.create("p")
    actors.bound("p")
    actors.cluster.kill("slurmctld")
    try:
        actors.delete("p")
        actors.gone("p")
    finally:
        actors.cluster.start("slurmctld")
    eventually(lambda: actors.job_of("p") is None, "job ended", 60)


def test_a_pod_deleted_while_the_extender_is_down_ends_its_job_later(actors: Actors) -> None:
    actors.create("p")
    actors.bound("p")
    actors.cluster.kill("extender")
    actors.delete("p")
    actors.gone("p")
    actors.cluster.start("extender")
    eventually(lambda: actors.job_of("p") is None, "job ended")


def test_a_job_cancelled_while_the_extender_is_down_evicts_its_pod_later(actors: Actors) -> None:
    actors.create("p")
    actors.bound("p")
    actors.cluster.kill("extender")
    actors.scancel("p")
    actors.cluster.start("extender")
    actors.gone("p")


def test_readyz_reports_a_wrong_token_until_the_file_is_corrected(quiet: Actors, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("not-a-token")
    environment = {"SLURM_EXTENDER_SLURM_TOKEN_FILE": str(token)}
    quiet.cluster.start("extender", env=environment, wait=False)
    try:
        problem = eventually(lambda: _problem(quiet, "Slurm's token"), "/readyz and the log tell")
        assert "token" in problem.lower()
        assert quiet.ready()[1]["problems"] == ["Slurm's token"]
        assert quiet.ready()[0] == 503
        quiet.create("p")
        eventually(lambda: quiet.condition("p").get("reason") == "SlurmNeedsOperator", "condition")
        token.write_text(quiet.cluster.mint_token("root"))
        quiet.bound("p")
    finally:
        quiet.cluster.stop("extender")


def test_expired_token_is_reported_on_waiting_pods(quiet: Actors, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(quiet.cluster.mint_token("root"))
    quiet.cluster.start("extender", env={"SLURM_EXTENDER_SLURM_TOKEN_FILE": str(token)})
    try:
        token.write_text(quiet.cluster.mint_token("root", 1))
        time.sleep(5)  # the token expires, and the extender reads the file again
        quiet.create("p")
        eventually(lambda: quiet.condition("p").get("reason") == "SlurmNeedsOperator", "condition")
        assert "expired" in quiet.condition("p")["message"]
        token.write_text(quiet.cluster.mint_token("root"))
        quiet.bound("p", within=40)
    finally:
        quiet.cluster.stop("extender")


def test_a_malformed_request_gets_an_answer_that_names_the_fault(actors: Actors) -> None:
    verbs = f"http://127.0.0.1:{actors.cluster.ports['extender-scheduler']}/scheduler"
    broken = httpx.post(f"{verbs}/filter", content=b"{", headers={"content-type": "application/json"})
    assert broken.status_code == 400
    assert "malformed" in broken.json()["Error"]
    lacking = httpx.post(f"{verbs}/bind", json={"PodName": "p"})
    assert lacking.status_code == 400
    assert "PodUID" in lacking.json()["Error"]
    misconfigured = httpx.post(f"{verbs}/filter", json={"Pod": pod("p"), "Nodes": {"items": []}})
    assert "nodeCacheCapable" in misconfigured.json()["Error"]


def _is_refused(actors: Actors, name: str) -> bool:
    return actors.condition(name).get("reason") == "Invalid"


def _problem(actors: Actors, part: str) -> str:
    try:
        return actors.problem(part)
    except httpx.HTTPError:
        return ""
