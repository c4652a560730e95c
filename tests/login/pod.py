"""Runs the containers of a Pod of the chart on this machine, as a container runtime does."""

from __future__ import annotations

import os
import socket
import subprocess
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil

from deploy.local.chart import Manifest, Rendered
from deploy.local.layout import CHECKOUT
from tests.login.container import Plan

_PATH = {"PATH": "/usr/sbin:/usr/bin"}


@dataclass(frozen=True)
class Given:
    """Resources that the Kubernetes cluster provides for a Pod."""

    chart: Rendered
    """The chart's objects, which include the ConfigMaps."""
    images: Mapping[str, Path]
    """By the image's name: the folder with the files of the image."""
    secrets: Mapping[str, Mapping[str, bytes]] = field(default_factory=dict)
    claims: Mapping[str, Path] = field(default_factory=dict)
    """By the name of the PersistentVolumeClaim: the folder of the volume."""
    hosts: Sequence[str] = ()
    """Host names that lead to 127.0.0.1."""


class Pod:
    """A Pod whose containers can be started and ended by name."""

    def __init__(self, spec: Manifest, given: Given, folder: Path) -> None:
        """Writes the Pod's volumes and logs into `folder`."""
        self._given = given
        self._folder = folder
        self._containers = {each["name"]: each for each in spec.get("initContainers", [])}
        self._containers |= {each["name"]: each for each in spec["containers"]}
        security = spec.get("securityContext", {})
        self._user = security.get("runAsUser", 0)
        self._user_group = security.get("runAsGroup", 0)
        self._group = security.get("fsGroup", 0)
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._volumes = {each["name"]: each for each in spec.get("volumes", [])}
        folder.mkdir(parents=True, exist_ok=True)
        hosts = f"127.0.0.1 localhost {socket.gethostname()} {' '.join(given.hosts)}\n"
        (folder / "hosts").write_text(hosts)
        for name, volume in self._volumes.items():
            if "persistentVolumeClaim" not in volume:
                self.volume(name).mkdir(parents=True)
                self._fill(name, volume)

    def volume(self, name: str) -> Path:
        """Returns the folder of a volume on this machine."""
        claim = self._volumes[name].get("persistentVolumeClaim")
        return self._given.claims[claim["claimName"]] if claim else self._folder / "volumes" / name

    def log(self, container: str) -> str:
        """Returns the log of a container."""
        return self._log(container).read_text(errors="replace")

    def plan(self, container: str) -> Plan:
        """Returns the Plan with which a container runs."""
        said: dict[str, Any] = self._containers[container]
        security = said.get("securityContext", {})
        image = said["image"].rpartition("/")[2].partition(":")[0]
        return Plan(
            root=str(self._given.images[image]),
            argv=[*said["command"], *said.get("args", [])],
            env=_PATH | {each["name"]: each["value"] for each in said.get("env", [])},
            mounts=[
                (str(self._folder / "hosts"), "/etc/hosts", False),
                *(self._mount(each) for each in said["volumeMounts"]),
            ],
            user=security.get("runAsUser", self._user),
            user_group=security.get("runAsGroup", self._user_group),
            group=self._group,
            capabilities=security["capabilities"].get("add", []),
            read_only=security["readOnlyRootFilesystem"],
        )

    def start(self, container: str, **instead: Any) -> None:
        """Starts a container that does not run. `instead` replaces fields of the container's Plan."""
        plan = replace(self.plan(container), **instead)
        with self._log(container).open("ab") as log:
            self._running[container] = subprocess.Popen(
                plan.command(), cwd=CHECKOUT, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def wait(self, container: str, within_s: float = 60.0) -> int:
        """Waits for the end of a container, and returns the exit status."""
        return self._running[container].wait(within_s)

    def kill(self, container: str) -> None:
        """Kills a container with all its processes, if the container runs."""
        process = self._running.pop(container, None)
        if process is not None:
            process.kill()
            process.wait()

    def is_running(self, container: str) -> bool:
        return container in self._running and self._running[container].poll() is None

    def execute(self, container: str, *command: str) -> subprocess.CompletedProcess[str]:
        """Runs a command in a container, as `kubectl exec` does."""
        (first,) = psutil.Process(self._running[container].pid).children()
        enter = ["nsenter", "--target", str(first.pid), "--mount", "--pid", "--root", "--wd"]
        return subprocess.run(
            [*enter, *command], env=_PATH, capture_output=True, text=True, timeout=60, check=False
        )

    def end(self) -> None:
        """Ends all containers."""
        for container in list(self._running):
            self.kill(container)

    def write(self, volume: str, files: Mapping[str, bytes], mode: int = 0o644) -> None:
        """Writes files to a volume, as the kubelet does after a change of a ConfigMap or Secret."""
        for name, content in files.items():
            path = self.volume(volume) / name
            path.write_bytes(content)
            os.chown(path, 0, self._group)
            path.chmod(mode | 0o440 if self._group else mode)

    def _fill(self, name: str, volume: Manifest) -> None:
        os.chown(self.volume(name), 0, self._group)
        self.volume(name).chmod(0o2777 if self._group else 0o777)  # the kubelet sets these modes
        if "configMap" in volume:
            found = self._given.chart.find("ConfigMap", volume["configMap"]["name"])
            self.write(name, {key: text.encode() for key, text in (found["data"] or {}).items()})
        for secret in _secrets(volume):
            content = self._given.secrets[secret.get("secretName") or secret["name"]]
            items = {each["key"]: each["path"] for each in secret.get("items", [])}
            files = {
                items.get(key, key): value for key, value in content.items() if not items or key in items
            }
            self.write(name, files, _mode(volume))

    def _mount(self, said: Manifest) -> tuple[str, str, bool]:
        source = self.volume(said["name"]) / said.get("subPath", "")
        return str(source), said["mountPath"], said.get("readOnly", False)

    def _log(self, container: str) -> Path:
        return self._folder / f"{container}.log"


def _secrets(volume: Manifest) -> Iterator[Manifest]:
    if "secret" in volume:
        yield volume["secret"]
    for source in volume.get("projected", {}).get("sources", []):
        if "secret" in source:
            yield source["secret"]


def _mode(volume: Manifest) -> int:
    mode: int = (volume.get("secret") or volume["projected"]).get("defaultMode", 0o644)
    return mode


def decoded(secret: Manifest) -> dict[str, bytes]:
    """Returns the decoded content of a Secret from kube-apiserver."""
    return {key: b64decode(value) for key, value in secret["data"].items()}


@contextmanager
def ended(pod: Pod) -> Iterator[Pod]:
    """Ends all containers of a Pod at the end of the block."""
    try:
        yield pod
    finally:
        pod.end()
