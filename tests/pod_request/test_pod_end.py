"""Tests of the message in the job's comment about the end of a Pod."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.pod_request.pod_end import (
    after_words,
    end_in_words,
    kubelet_rejection,
    own_comment,
    pod_in_words,
    with_words,
)
from slurm_client.model import MOST_BYTES
from tests.builders import Manifest, pod_manifest


def told(phase: str = "Running", *, deleting: bool = False, **status: Any) -> str:
    manifest = pod_manifest(phase=phase, deleting=deleting, node="n1")
    manifest["status"] |= status
    return end_in_words(manifest)


def disrupted(reason: str, message: str, status: str = "True") -> Manifest:
    condition = {"type": "DisruptionTarget", "status": status, "reason": reason, "message": message}
    return {"conditions": [{"type": "Ready", "status": "True"}, condition]}


def exited(**codes: int) -> Manifest:
    states = {name: {"terminated": {"exitCode": code}} for name, code in codes.items()}
    return {"containerStatuses": [{"name": name, "state": state} for name, state in states.items()]}


@pytest.mark.parametrize("phase", ["Pending", "Running", "Unknown"])
def test_pod_before_its_end_has_no_end_message(phase: str) -> None:
    assert told(phase) == ""
    assert told(phase, **disrupted("Preempted", "not yet")) == ""


def test_end_message_distinguishes_success_failure_and_deletion() -> None:
    assert told("Succeeded") == "Pod succeeded"
    assert told("Failed") == "Pod failed"
    assert told(deleting=True) == "Pod deleted"


def test_end_message_of_a_deleted_pod_ignores_exit_codes() -> None:
    assert told("Failed", deleting=True, **exited(main=143)) == "Pod deleted"


def test_failure_message_has_the_reason_or_the_exit_codes() -> None:
    assert told("Failed", reason="DeadlineExceeded") == "Pod failed: DeadlineExceeded"
    assert told("Failed", **exited(a=0, b=3, c=137)) == "Pod failed: b exited with 3, c exited with 137"
    assert told("Failed", containerStatuses=[{"name": "a", "state": {"running": {}}}]) == "Pod failed"


def test_control_characters_in_a_reason_become_spaces() -> None:
    forged = "x\n54271915 main\x1b[2K y\u202ez\0"
    assert told("Failed", reason=forged) == "Pod failed: x 54271915 main [2K y z"


def test_eviction_message_names_the_reason_of_the_disruption() -> None:
    by_node = disrupted("DeletionByPodGC", "PodGC: node no longer exists")
    words = "Pod evicted: DeletionByPodGC: PodGC: node no longer exists"
    assert told(deleting=True, **by_node) == told("Failed", **by_node) == words
    assert told(deleting=True, **disrupted("Preempted", "", "False")) == "Pod deleted"


def test_eviction_message_is_one_short_line() -> None:
    words = told(deleting=True, **disrupted("Odd", "a\nb\t" + "c" * 5000))
    assert words.startswith("Pod evicted: Odd: a b ccc")
    assert len(words) == 200


def test_end_message_is_added_to_the_comment_of_the_author() -> None:
    assert with_words(None, "Pod deleted") == "Pod deleted"
    assert with_words("nightly", "Pod deleted") == "nightly; Pod deleted"
    assert with_words("nightly; Pod deleted", "Pod deleted") == "nightly; Pod deleted"


CHAT = "Kubernetes Pod default/chat"


def test_comment_says_what_scancel_does_only_while_the_pod_lives() -> None:
    for cluster, named in (("", CHAT), ("prod", f"{CHAT} of cluster prod")):
        lives = own_comment(pod_in_words("default", "chat", cluster))
        assert lives == f"{named}; scancel evicts it"
        assert with_words(lives, "Pod deleted") == f"{named}; Pod deleted"
        assert after_words("Replaced: why", lives) == f"Replaced: why; {named}"


@given(st.text(max_size=MOST_BYTES), st.text(min_size=1, max_size=300))
def test_comment_fits_slurm_and_keeps_the_text_of_the_author(comment: str, words: str) -> None:
    comment = comment.encode()[:MOST_BYTES].decode(errors="ignore")
    written = with_words(comment, words)
    assert written.startswith(comment)
    assert len(written.encode()) <= MOST_BYTES


@pytest.mark.parametrize(
    ("status", "rejection"),
    [
        (
            {
                "phase": "Failed",
                "reason": "OutOfcpu",
                "message": "Pod was rejected: Node didn't have enough resource: cpu",
            },
            "OutOfcpu: Node didn't have enough resource: cpu",
        ),
        ({"phase": "Failed", "reason": "Evicted", "message": "Pod was evicted by the node"}, ""),
        ({"phase": "Failed", "reason": "DeadlineExceeded", "message": "Pod was active too long"}, ""),
        ({"phase": "Failed"}, ""),
        ({"phase": "Running", "reason": "x", "message": "Pod was rejected: x"}, ""),
        ({}, ""),
    ],
)
def test_kubelet_rejection_is_distinguished_from_other_ends(status: Any, rejection: str) -> None:
    assert kubelet_rejection(status) == rejection
