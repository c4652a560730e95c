"""Runs helm and kubectl on a cluster whose only Node is a guest. If a call fails, the error contains the
state of the Pods."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from deploy.local.cluster import Cluster
from deploy.local.errors import ClusterError
from tests.eventually import eventually

WITHIN_S: Final = 600.0
"""Maximum time of a step, in seconds. On an idle machine, a step takes about a minute, because the guest
is emulated."""
_OF_RELEASES: Final = "app.kubernetes.io/instance"


class Releases:
    """The Helm releases in one namespace."""

    def __init__(self, cluster: Cluster, helm: Path, namespace: str) -> None:
        self._cluster = cluster
        self._helm = helm
        self._namespace = namespace

    def helm(self, *arguments: str) -> str:
        """Returns helm's output. If helm fails, raises ClusterError with the events and logs of the
        Pods."""
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
        """Returns the first true value of `see`. After a timeout, the error contains the events and logs
        of the Pods."""
        try:
            return eventually(see, what, WITHIN_S)
        except AssertionError as late:
            raise AssertionError(f"{late}\n{self.story()}") from None

    def story(self) -> str:
        """Describes the Pods, with their events and the ends of their logs."""
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
