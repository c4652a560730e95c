"""helm and kubectl on a cluster whose Node is a guest: what they do, and what is told where it fails."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from deploy.local.cluster import Cluster
from deploy.local.errors import ClusterError
from tests.eventually import eventually

WITHIN_S: Final = 600.0
"""For what takes a minute where nothing else runs: the guest is emulated."""
_OF_RELEASES: Final = "app.kubernetes.io/instance"


class Releases:
    """The releases of a namespace."""

    def __init__(self, cluster: Cluster, helm: Path, namespace: str) -> None:
        self._cluster = cluster
        self._helm = helm
        self._namespace = namespace

    def helm(self, *arguments: str) -> str:
        """Returns what helm says. Raises ClusterError, with what the Pods say."""
        options = ("--namespace", self._namespace, "--timeout", f"{WITHIN_S:.0f}s")
        waits = options if arguments[0] != "list" else options[:2]
        done = subprocess.run(
            [str(self._helm), *arguments, *waits, "--kubeconfig", str(self._cluster.kubeconfig)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            said = f"{done.stdout}\n{done.stderr}\n{self.story()}"
            raise ClusterError(f"helm {arguments[0]} failed ({done.returncode}): {said}")
        return done.stdout

    def until(self, see: Callable[[], Any], what: str) -> Any:
        """The first true answer; where there is none, what the Pods say is part of the error."""
        try:
            return eventually(see, what, WITHIN_S)
        except AssertionError as late:
            raise AssertionError(f"{late}\n{self.story()}") from None

    def story(self) -> str:
        """The Pods, their events and the ends of their logs."""
        said = []
        for ask in (
            ("get", "pods", "-A", "-o", "wide"),
            ("get", "events", "-A", "--sort-by=.lastTimestamp"),
            ("logs", "-n", self._namespace, "-l", _OF_RELEASES, "--all-containers", "--prefix",
             "--tail=25", "--max-log-requests=50"),
        ):  # fmt: skip
            try:
                said.append(self._cluster.kubectl(*ask).stdout[-9000:])
            except ClusterError as error:
                said.append(str(error))
        return "\n".join(said)
