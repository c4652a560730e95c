"""Reads both systems directly, from outside: kube-apiserver by a watch, slurmctld by scontrol."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from math import inf
from threading import Event, Lock, Thread
from typing import Any

import httpx

from deploy.local.cluster import Cluster
from tests.administrator import Kubernetes
from tests.chaos.anomalies import Since
from tests.chaos.checker import Checker
from tests.chaos.cluster_spec import LABEL
from tests.chaos.history import SeenJob, SeenNode, SeenPod, read_jobs, read_nodes, read_pod
from tests.chaos.quiet_periods import QuietPeriods

_PODS = "/api/v1/namespaces/default/pods"
_INTERVAL_S = 0.4
_NODES_INTERVAL_S = 1.0
_LEAVING_INTERVAL_S = 0.1
_LISTS_INTERVAL_S = 1.0
_NOT_OF_THE_CROWD = f"{_PODS}?labelSelector=%21{LABEL}"
_SCONTROL_S = 6.0


class Observer:
    """Reports all observations to a checker, until `stop`."""

    def __init__(
        self, cluster: Cluster, checker: Checker, quiet: QuietPeriods, placing: QuietPeriods
    ) -> None:
        self._cluster, self._kubernetes = cluster, Kubernetes(cluster)
        self._checker, self._quiet, self._placing = checker, quiet, placing
        self._lock, self._over = Lock(), Event()
        parts = (self._watch_pods, self._watch_leaving, self._watch_jobs, self._watch_nodes)
        self._threads = [Thread(target=part) for part in parts]
        self._latest: list[SeenJob] = []
        self.looks = 0
        """Number of slurmctld's replies."""

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()
        self._kubernetes.close()

    def latest_jobs(self) -> list[SeenJob]:
        """Returns the jobs in slurmctld's last reply."""
        return self._latest

    def jobs(self) -> list[SeenJob]:
        """Requests all jobs from slurmctld. Raises subprocess.SubprocessError without a reply."""
        return read_jobs(self._scontrol("jobs"), lambda name: self._checker.uids.get(name, ""))

    def nodes(self) -> list[SeenNode]:
        """Requests all nodes from both systems. Raises httpx.HTTPError or subprocess.SubprocessError."""
        manifests = self._kubernetes.ask("GET", "/api/v1/nodes")["items"]
        return read_nodes(self._scontrol("nodes"), manifests)

    def pods(self) -> list[SeenPod]:
        """Returns all existing Pods, as the watch has reported."""
        with self._lock:
            return list(self._checker.pods.values())

    def placed_before(self, moment: float) -> set[str]:
        """Returns the workloads of the Pods with a Binding before a time, without Pods that are over."""
        with self._lock:
            return self._checker.placed_before(moment)

    def _scontrol(self, what: str) -> str:
        scontrol = [str(self._cluster.directory / "bin" / "scontrol"), "-d", "-o", "show", what]
        done = subprocess.run(scontrol, capture_output=True, text=True, timeout=_SCONTROL_S, check=True)
        return done.stdout

    def _since(self) -> Since:
        return Since(self._quiet.since(), self._placing.since())

    def _watch_jobs(self) -> None:
        while not self._over.wait(_INTERVAL_S):
            begin = time.monotonic()
            try:
                jobs = self.jobs()
            except subprocess.SubprocessError:
                continue
            self.looks += 1
            self._latest = jobs
            with self._lock:
                self._checker.jobs_seen(begin, time.monotonic(), self._since(), jobs)

    def _watch_nodes(self) -> None:
        while not self._over.wait(_NODES_INTERVAL_S):
            begin = time.monotonic()
            try:
                nodes = self.nodes()
            except (httpx.HTTPError, subprocess.SubprocessError):
                continue
            with self._lock:
                self._checker.nodes_seen(begin, time.monotonic(), self._since(), nodes)

    def _watch_leaving(self) -> None:
        """Requests all Pods, and more often the Pods in deletion, because a watch reports the end of a
        Pod late."""
        known, listed_at = set(self._cluster.spec.node_names), -inf
        while not self._over.wait(_LEAVING_INTERVAL_S):
            if (now := time.monotonic()) >= listed_at + _LISTS_INTERVAL_S:
                listed_at = now
                self._look(_NOT_OF_THE_CROWD)
            for pod in self.pods():
                if pod.deleting and pod.node in known:
                    self._look(f"{_PODS}/{pod.name}")
        self._look(_NOT_OF_THE_CROWD)

    def _look(self, path: str) -> None:
        """Requests Pods. Each Pod of the reply surely existed at the start of the request."""
        begin = time.monotonic()
        with suppress(httpx.HTTPError):
            answer = self._kubernetes.ask("GET", path)
            for pod in map(read_pod, answer.get("items", [answer])):
                if not pod.ended:
                    with self._lock:
                        self._checker.pod_there(begin, pod.uid)

    def _watch_pods(self) -> None:
        version = ""
        while not self._over.is_set():
            try:
                version = version or self._list_pods()
                for kind, manifest in self._changes(version):
                    if kind == "ERROR":
                        version = ""
                        break
                    version = manifest["metadata"]["resourceVersion"]
                    self._tell(kind, manifest)
            except (httpx.HTTPError, json.JSONDecodeError):
                self._over.wait(0.1)

    def _list_pods(self) -> str:
        listed = self._kubernetes.ask("GET", _PODS)
        pods = [read_pod(manifest) for manifest in listed["items"]]
        with self._lock:
            now = time.monotonic()
            for uid in self._checker.pods.keys() - {pod.uid for pod in pods}:
                self._checker.pod_gone(now, uid)
            for pod in pods:
                self._checker.pod_seen(now, pod)
        return str(listed["metadata"]["resourceVersion"])

    def _changes(self, version: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yields the changes of Pods. Ends after a few seconds at the latest, so that the observer can
        stop."""
        for line in self._kubernetes.watch(_PODS, version, seconds=5):
            event = json.loads(line)
            yield event["type"], event["object"]

    def _tell(self, kind: str, manifest: dict[str, Any]) -> None:
        if kind == "BOOKMARK":
            return
        with self._lock:
            if kind == "DELETED":
                self._checker.pod_gone(time.monotonic(), manifest["metadata"]["uid"])
            else:
                self._checker.pod_seen(time.monotonic(), read_pod(manifest))
