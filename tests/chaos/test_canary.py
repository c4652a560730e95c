"""Tests of the canary: how long a kube-scheduler that sees no Pods excuses anomalies."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from tests.chaos.canary import Canary
from tests.chaos.quiet_periods import QuietPeriods
from tests.eventually import eventually

_WITHIN_S = 5.0


class Api:
    """A kube-apiserver with Pods by path, and a kube-scheduler that may be blind."""

    def __init__(self) -> None:
        self.pods: set[str] = set()
        self.created = 0
        self.blind = False
        self.closed = False

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        path = path.partition("?")[0]
        if method == "POST":
            assert body is not None
            if f"/namespaces/{body['metadata']['namespace']}/" not in path:
                _raise(400, method, path)
            self.created += 1
            self.pods.add(f"{path}/{body['metadata']['name']}")
            return body
        if path not in self.pods:
            _raise(404, method, path)
        if method == "DELETE":
            self.pods.remove(path)
        return {"status": {} if self.blind else {"conditions": [{"type": "PodScheduled"}]}}

    def close(self) -> None:
        self.closed = True


def _raise(status: int, method: str, path: str) -> None:
    request = httpx.Request(method, f"http://stub{path}")
    httpx.Response(status, request=request).raise_for_status()


class Scene:
    def __init__(self, gives_up_after_s: float) -> None:
        self.api, self.quiet, self.log = Api(), QuietPeriods(), list[str]()
        self.placing = QuietPeriods(within=self.quiet)
        self.canary = Canary(self.api, self.placing, self.log.append, gives_up_after_s)


@contextmanager
def asked(gives_up_after_s: float = 60.0, *, blind: bool) -> Iterator[Scene]:
    """Yields a scene after the canary has created a Pod."""
    scene = Scene(gives_up_after_s)
    scene.api.blind = blind
    scene.canary.start()
    try:
        scene.canary.ask()
        eventually(lambda: scene.api.created == 1, within_s=_WITHIN_S)
        yield scene
    finally:
        scene.canary.stop()
    assert scene.api.closed


def test_only_placing_is_disturbed_until_the_canary_is_judged() -> None:
    with asked(blind=True) as scene:
        assert scene.placing.since() is None
        assert scene.quiet.since() is not None
        scene.api.blind = False
        eventually(lambda: scene.placing.since() is not None, within_s=_WITHIN_S)
        eventually(lambda: not scene.api.pods, within_s=_WITHIN_S)
    assert scene.log == []
    assert 0.0 < scene.canary.blind_s < _WITHIN_S


def test_canary_gives_up_and_excuses_nothing_until_its_pod_is_judged() -> None:
    with asked(gives_up_after_s=0.3, blind=True) as scene:
        eventually(lambda: scene.placing.since() is not None, within_s=_WITHIN_S)
        eventually(lambda: scene.log != [], within_s=_WITHIN_S)
        since = scene.placing.since()
        scene.canary.ask()
        time.sleep(0.5)
        assert scene.placing.since() == since
        scene.api.blind = False
        eventually(lambda: scene.api.created == 2, within_s=_WITHIN_S)
    assert len(scene.log) == 1
    assert "no excuse" in scene.log[0]
    assert scene.canary.blind_s == pytest.approx(1.0, abs=0.5)


def test_deleted_pod_of_the_canary_is_recreated() -> None:
    with asked(blind=True) as scene:
        scene.api.pods.clear()
        eventually(lambda: scene.api.created == 2, within_s=_WITHIN_S)
        assert scene.placing.since() is None
        scene.api.blind = False
        eventually(lambda: scene.placing.since() is not None, within_s=_WITHIN_S)


def test_canary_can_be_stopped_while_kube_scheduler_is_blind() -> None:
    with asked(blind=True) as scene:
        begin = time.monotonic()
    assert time.monotonic() - begin < 1.0
    assert scene.placing.since() is not None
    assert scene.log == []
