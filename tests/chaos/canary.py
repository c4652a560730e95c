"""Tests if kube-scheduler sees Pods. After repeated kills of kube-apiserver, kube-scheduler's reflectors
wait for a minute or longer before the next list of Pods. Until this list, kube-scheduler may bind Pods
that are deleted, and binds no new Pods."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from math import inf
from threading import Event, Thread
from typing import Any, Final, Protocol

import httpx

from tests.chaos.quiet_periods import QuietPeriods
from tests.end_to_end.actors import Manifest, pod

NEEDED_AFTER: Final = ("kube-apiserver", "kube-scheduler")
"""Beginnings of the names of components whose failures may leave kube-scheduler's lists old."""
GIVES_UP_AFTER_S: Final = 180.0
"""Longest time for which blindness of kube-scheduler is an excuse, in seconds."""
_NAMESPACE: Final = "kube-system"
_PODS = f"/api/v1/namespaces/{_NAMESPACE}/pods"
_ASKS_EVERY_S = 0.2
_WORTH_TELLING_S = 5.0


class Api(Protocol):
    """Calls of a canary to kube-apiserver. Each call may raise httpx.HTTPError."""

    def ask(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> Mapping[str, Any]: ...

    def close(self) -> None: ...


class Canary:
    """Creates Pods that fit on no Node. `placing` counts as disturbed until kube-scheduler has rejected
    the Pod, but not beyond a time limit."""

    def __init__(
        self,
        api: Api,
        placing: QuietPeriods,
        log: Callable[[str], None],
        gives_up_after_s: float = GIVES_UP_AFTER_S,
    ) -> None:
        self._api, self._placing, self._log = api, placing, log
        self._gives_up_after_s = gives_up_after_s
        self._asked, self._over = Event(), Event()
        self._names = (f"canary-{number}" for number in itertools.count(1))
        self._thread = Thread(target=self._run)
        self.blind: list[tuple[float, float]] = []
        """Start and end of the wait for each Pod's judgement. Read this list only after `stop`."""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()
        self._api.close()

    def ask(self) -> None:
        """Requests a new Pod. If another Pod is still waiting, the new Pod follows later."""
        self._asked.set()

    @property
    def blind_s(self) -> float:
        """Returns the total time for which the Pods waited for kube-scheduler, in seconds."""
        return sum(end - begin for begin, end in self.blind)

    def _run(self) -> None:
        while not self._over.is_set():
            if self._asked.wait(_ASKS_EVERY_S):
                self._asked.clear()
                self._send(next(self._names))

    def _send(self, name: str) -> None:
        begin = time.monotonic()
        with self._placing.disturbed("kube-scheduler sees no Pods"):
            seen = self._until(lambda: self._judged(name), begin + self._gives_up_after_s)
        if not seen and not self._over.is_set():
            self._log(f"kube-scheduler sees no Pods since {self._gives_up_after_s:.0f} s: no excuse now")
            self._until(lambda: self._judged(name))
        took = (end := time.monotonic()) - begin
        self.blind.append((begin, end))
        if took > _WORTH_TELLING_S:
            self._log(f"kube-scheduler saw no Pods for {took:.1f} s")
        self._until(lambda: self._deleted(name))

    def _until(self, done: Callable[[], bool], deadline: float = inf) -> bool:
        """Waits until `done` returns True. Returns False after the deadline or `stop`."""
        while not self._over.is_set() and time.monotonic() < deadline:
            with suppress(httpx.HTTPError):
                if done():
                    return True
            self._over.wait(_ASKS_EVERY_S)
        return False

    def _judged(self, name: str) -> bool:
        """Returns True if kube-scheduler has judged the Pod. Creates the Pod if no such Pod exists."""
        try:
            status = self._api.ask("GET", f"{_PODS}/{name}").get("status") or {}
        except httpx.HTTPStatusError as error:
            if error.response.status_code == httpx.codes.NOT_FOUND:
                self._api.ask("POST", _PODS, _manifest(name))
            return False
        return any(each["type"] == "PodScheduled" for each in status.get("conditions") or ())

    def _deleted(self, name: str) -> bool:
        """Deletes the Pod. Returns True if the Pod is deleted or already gone."""
        try:
            self._api.ask("DELETE", f"{_PODS}/{name}?gracePeriodSeconds=0")
        except httpx.HTTPStatusError as error:
            return error.response.status_code == httpx.codes.NOT_FOUND
        return True


def _manifest(name: str) -> Manifest:
    """Returns a Pod with the highest priority. kube-scheduler takes this Pod first, so a long queue does
    not count as blindness."""
    manifest = pod(
        name,
        cpu=None,
        memory=None,
        scheduler="default-scheduler",
        priorityClassName="system-cluster-critical",
        nodeSelector={"nobody-has": "this"},
    )
    manifest["metadata"]["namespace"] = _NAMESPACE
    return manifest
