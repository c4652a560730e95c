"""Tests of malformed requests, up to the largest size of a request. kube-scheduler and kube-apiserver
send no such requests.

The extender rejects such a request soon. The message in the reply and in the log is short, and names the
wrong field.
"""

import asyncio
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import count, islice
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from service.logging import configure_logging
from service.rate_limited_log import RateLimitedLog
from tests.builders import Manifest, pod_manifest, unmanaged
from tests.clock import CpuClock
from tests.verbs.callers import Listeners, body

LONGEST = 1500
LARGE = 4 << 20
POD = b'{"request": {"uid": "u", "kind": {"kind": "Pod"}, "object": {"metadata": {%s}, "spec": {%s}}}}'


def many(item: bytes) -> bytes:
    return b",".join([item] * (LARGE // (len(item) + 1) - 100))


def numbered(value: bytes) -> bytes:
    entries: Iterator[bytes] = (b'"%d":' % number + value for number in count())
    return b",".join(islice(entries, LARGE // (10 + len(value))))


def reviews(**request: Any) -> Manifest:
    return {"request": {"uid": "u"} | request}


def of_seconds(name: str, value: Any) -> tuple[Manifest, str]:
    return reviews(kind={"kind": "Pod"}, object=pod_manifest(**{name: value})), name


NOT_SECONDS: tuple[Any, ...] = ("60", 60.0, True, [], {}, 1e300)
NOT_PODS: tuple[Any, ...] = (None, [], {}, {"metadata": {}})
NO_NAMES: tuple[Any, ...] = (b"", b"[", [], {"NodeNames": "n1"}, {"NodeNames": [None]})
NO_SECONDS = [
    of_seconds(name, value)
    for name in ("terminationGracePeriodSeconds", "activeDeadlineSeconds")
    for value in NOT_SECONDS
]
FILTER, BIND, UIDS = body("filter"), body("bind"), ("a", {"UID": 5}, {"UID": None})
VICTIMS = [[], {"n1": None}, {"n1": {}}, {"n1": {"Pods": None}}, {"n1": {"Pods": [{}]}}]
FIELDS: dict[str, list[tuple[Any, str]]] = {
    "mutate": [
        *((b"", "body"), (b"{", "body"), ([], "body"), ({}, "request"), ({"request": None}, "request")),
        *((reviews(), "request.object"), (reviews(object=None), "request.object")),
        (reviews(object={}), "request.object"),
        (reviews(object={"metadata": None, "spec": None}), "request.object"),
        (reviews(object={"metadata": {}, "spec": {"containers": [7]}}), "containers"),
        ({"request": {"object": {}}}, "uid"),
        *NO_SECONDS,
    ],
    "validate": [
        *((b"{", "body"), ({}, "request"), (reviews(), "request.kind")),
        (reviews(kind={"kind": "Pod"}), "request.object"),
        (reviews(kind={"kind": "Pod"}, object={}), "metadata"),
        *NO_SECONDS,
    ],
    "filter": [
        *((b"", "body"), (b"{", "body"), (b"null", "body"), ([], "body"), ({}, "Pod")),
        *(({"Pod": pod, "NodeNames": []}, "Pod") for pod in NOT_PODS),
        ({"Pod": {"metadata": None, "spec": None}, "NodeNames": []}, "Pod"),
        *((FILTER | {"NodeNames": names}, "NodeNames") for names in ("n1", [1], {"n1": 1})),
    ],
    "prioritize": [(sent, "malformed request") for sent in NO_NAMES],
    "preempt": [
        ({"Pod": unmanaged(), "NodeNameToMetaVictims": each}, "malformed request: NodeNameToMetaVictims")
        for each in (*VICTIMS, *({"n1": {"Pods": [uid]}} for uid in UIDS))
    ],
    "bind": [
        *((BIND | {name: None}, name) for name in BIND),
        *(({key: value for key, value in BIND.items() if key != name}, name) for name in BIND),
    ],
}


@pytest.mark.parametrize(
    ("verb", "sent", "field"), [(verb, *case) for verb, cases in FIELDS.items() for case in cases]
)
async def test_malformed_call_names_the_wrong_field(verb: str, sent: Any, field: str) -> None:
    response = await Listeners().post(verb, sent)
    assert response.status_code == 400
    assert field in response.json()["Error"]


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
def test_large_malformed_request_gets_a_short_error_soon(verb: str, sent: bytes) -> None:
    listeners = Listeners()
    with capture_logs() as logs:
        clock = CpuClock()
        answer = asyncio.run(listeners.post(verb, sent))
        took = clock.read()
    assert answer.status_code == 400, answer.text[:LONGEST]
    assert len(answer.content) < LONGEST
    assert [entry["event"] for entry in logs] == ["malformed request"]
    assert len(str(logs)) < LONGEST
    assert took < 3  # much less than a minute


MANY_VALUES = {
    "lists": b"[" + many(b"[]") + b"]",
    "objects": b"[" + many(b"{}") + b"]",
    "keys": b"{" + numbered(b"0") + b"}",
    "numbers": b"[" + many(b"0") + b"]",
}


@pytest.mark.parametrize("verb", ["mutate", "validate"])
@pytest.mark.parametrize("values", MANY_VALUES.values(), ids=MANY_VALUES)
def test_body_with_too_many_values_is_rejected(verb: str, values: bytes) -> None:
    """The extender does not use this part of a Pod, but the part counts for the limit."""
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


def test_long_text_is_truncated_in_the_log(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
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
