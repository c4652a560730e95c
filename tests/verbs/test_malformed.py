"""Requests that no kube-scheduler and no kube-apiserver sends, as large as a listener takes them.

They are refused in a few words, in the reply as in the log, and soon.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import count, islice

import pytest
import structlog
from structlog.testing import capture_logs

from service.logging import configure_logging
from service.rate_limited_log import RateLimitedLog
from tests.clock import CpuClock
from tests.verbs.callers import Listeners

LONGEST = 1500
LARGE = 4 << 20
POD = b'{"request": {"uid": "u", "kind": {"kind": "Pod"}, "object": {"metadata": {%s}, "spec": {%s}}}}'


def many(item: bytes) -> bytes:
    return b",".join([item] * (LARGE // (len(item) + 1) - 100))


def numbered(value: bytes) -> bytes:
    entries: Iterator[bytes] = (b'"%d":' % number + value for number in count())
    return b",".join(islice(entries, LARGE // (10 + len(value))))


HOSTILE = {
    "containers": ("mutate", POD % (b"", b'"containers": [' + many(b"0") + b"]")),
    "tolerations": ("validate", POD % (b"", b'"tolerations": [' + many(b"0") + b"]")),
    "gates": ("mutate", POD % (b"", b'"schedulingGates": [' + many(b"{}") + b"]")),
    "annotations": ("mutate", POD % (b'"annotations": {' + numbered(b"0") + b"}", b"")),
    "a long key": ("mutate", POD % (b'"labels": {"' + b"k" * LARGE + b'": 0}', b"")),
    "amounts": (
        "mutate",
        POD % (b"", b'"containers": [{"resources": {"requests": {' + numbered(b"null") + b"}}}]"),
    ),
    "names": ("filter", b'{"Pod": {"metadata": {}, "spec": {}}, "NodeNames": [' + many(b"0") + b"]}"),
    "names to order": ("prioritize", b'{"NodeNames": [' + many(b"0") + b"]}"),
    "victims": (
        "preempt",
        b'{"Pod": {"metadata": {}, "spec": {}}, "NodeNameToMetaVictims": {' + numbered(b"0") + b"}}",
    ),
    "no JSON": ("mutate", b"{" * LARGE),
}


@pytest.mark.alone
@pytest.mark.parametrize(("verb", "sent"), HOSTILE.values(), ids=HOSTILE)
def test_what_is_wrong_is_told_in_few_words_however_much_it_is(verb: str, sent: bytes) -> None:
    listeners = Listeners()
    with capture_logs() as logs:
        clock = CpuClock()
        answer = asyncio.run(listeners.post(verb, sent))
        took = clock.read()
    assert answer.status_code == 400, answer.text[:LONGEST]
    assert len(answer.content) < LONGEST
    assert [entry["event"] for entry in logs] == ["malformed request"]
    assert len(str(logs)) < LONGEST
    assert took < 3  # and not a minute, for a kilobyte of memory each


MANY_VALUES = {
    "lists": b"[" + many(b"[]") + b"]",
    "objects": b"[" + many(b"{}") + b"]",
    "keys": b"{" + numbered(b"0") + b"}",
    "numbers": b"[" + many(b"0") + b"]",
}


@pytest.mark.parametrize("verb", ["mutate", "validate"])
@pytest.mark.parametrize("values", MANY_VALUES.values(), ids=MANY_VALUES)
def test_what_has_too_many_values_to_be_parsed_in_the_event_loop_is_refused(
    verb: str, values: bytes
) -> None:
    """Nobody reads this part of a Pod."""
    answer = asyncio.run(Listeners().post(verb, POD % (b'"managedFields": ' + values, b"")))
    assert answer.status_code == 400
    assert "brackets and commas, and at most 300000 are taken" in answer.text


@pytest.mark.parametrize("verb", ["mutate", "validate"])
def test_a_pod_of_very_many_values_is_still_read(verb: str) -> None:
    values = b",".join([b'{"name": "n", "value": "v"}'] * 70_000)
    answer = asyncio.run(Listeners().post(verb, POD % (b"", b'"volumes": [' + values + b"]")))
    assert answer.status_code == 200, answer.text[:LONGEST]


def test_events_that_strangers_cause_are_logged_at_a_limited_rate() -> None:
    now = [0.0]
    limited = RateLimitedLog("refused", lambda: now[0])
    with capture_logs() as logs:
        for _ in range(50):
            limited.says(why="too large")
        now[0] = 31.0
        limited.says(why="malformed")
    assert [(entry["why"], entry["since_last_told"]) for entry in logs] == [
        ("too large", 1),
        ("malformed", 50),
    ]


def test_no_text_in_the_log_is_long(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    before = structlog.get_config()
    try:
        configure_logging("INFO")
        structlog.get_logger().info("told", error="x" * (1 << 20), short="y")
    finally:
        structlog.configure(**before)
    (line,) = capfdbinary.readouterr().err.splitlines()
    assert len(line) < 10_000
    told = json.loads(line)
    assert told["short"] == "y"
    assert datetime.fromisoformat(told["timestamp"]).tzinfo is UTC
    assert told["timestamp"].endswith("Z")
    assert told["error"].endswith("x... (1048576 characters)")


def test_many_malformed_requests_are_one_line_of_the_log() -> None:
    listeners = Listeners()
    with capture_logs() as logs:
        for _ in range(20):
            assert asyncio.run(listeners.post("mutate", b"{")).status_code == 400
    assert len(logs) == 1
