"""Tests of the conditions on Pods and Nodes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from wellknown.conditions import condition, is_stale, timestamp

NOW = datetime(2026, 11, 23, 12, 0, 0, 999_999, tzinfo=UTC)


def test_condition_has_the_time_of_its_transition() -> None:
    assert condition("Ready", "Because", "of this", NOW, holds=True) == {
        "type": "Ready",
        "status": "True",
        "reason": "Because",
        "message": "of this",
        "lastTransitionTime": "2026-11-23T12:00:00Z",
    }


def test_a_condition_whose_status_is_the_same_keeps_its_time() -> None:
    written = condition("Ready", "Because", "of that", NOW, holds=False, changed=False)
    assert (written["status"], "lastTransitionTime" in written) == ("False", False)


def test_timestamp_is_in_utc() -> None:
    elsewhere = NOW.astimezone(timezone(timedelta(hours=2)))
    assert timestamp(elsewhere) == timestamp(NOW) == "2026-11-23T12:00:00Z"


def test_condition_is_stale_without_a_recent_heartbeat() -> None:
    beat = {"lastHeartbeatTime": "2026-11-29T12:00:00Z"}
    written = datetime(2026, 11, 29, 12, tzinfo=UTC).timestamp()
    assert not is_stale(beat, written + 900, 900)
    assert is_stale(beat, written + 901, 900)
    assert not is_stale({}, written + 901, 900)
