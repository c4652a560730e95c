"""Actors of the end-to-end tests: a Pod author with kubectl, a Slurm administrator with squeue, and
reads of both systems."""

from __future__ import annotations

import itertools
import json
import ssl
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import httpx
import yaml

from deploy.local.cluster import Cluster
from tests.eventually import eventually, eventually_not
from wellknown.job_key import job_name

Manifest = dict[str, Any]

PREFIX = "sunk.coreweave.com/"
CONDITION = "slurm-extender.io/Placeholder"
SIGN = job_name("", "")
"""String in the name of each placeholder, and of no native job in the tests."""
_ROUNDS = itertools.count(1)
_NO_AUTHORITIES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def fetch(url: str) -> httpx.Response:
    """Sends a GET over plain HTTP. With the default of `verify`, httpx.get would first read the CA
    certificates of this machine, which takes 25 ms of CPU time."""
    return httpx.get(url, timeout=5, verify=_NO_AUTHORITIES)


@dataclass(frozen=True)
class QueuedJob:
    """A line of squeue."""

    id: int
    name: str
    state: str
    node: str
    reason: str
    comment: str


@dataclass
class Actors:
    """Users and administrators of one cluster, or of one namespace in the cluster."""

    cluster: Cluster
    namespace: str = "default"

    def __post_init__(self) -> None:
        self.begin()
        kubeconfig = yaml.safe_load(self.cluster.kubeconfig.read_text())
        ca = kubeconfig["clusters"][0]["cluster"]["certificate-authority"]
        self.api = httpx.Client(
            base_url=f"{self.cluster.api_server_url}/api/v1/namespaces/{self.namespace}",
            headers={"Authorization": f"Bearer {kubeconfig['users'][0]['user']['token']}"},
            verify=ssl.create_default_context(cafile=ca),
            timeout=20,
        )

    def begin(self) -> None:
        """Changes the suffix of all Pod names for the next test. A late write of kwok to an old Pod then
        reaches no new Pod."""
        self.round = next(_ROUNDS)

    def full(self, name: str) -> str:
        """Returns the full name of a Pod."""
        return f"{name}-{self.round}"

    def job_name(self, name: str) -> str:
        """Returns the name of a Pod's job in squeue."""
        return job_name(self.namespace, self.full(name))

    # The Pod author

    def create(self, name: str, **given: Any) -> Manifest:
        """Creates a Pod. The parameters are the parameters of `pod`."""
        manifest = pod(self.full(name), **given)
        manifest["metadata"]["namespace"] = self.namespace
        return dict(self.api.post("/pods", json=manifest).raise_for_status().json())

    def apply(self, manifest: Manifest, *options: str) -> CompletedProcess[str]:
        manifest["metadata"]["name"] = self.full(manifest["metadata"]["name"])
        return self.kubectl("apply", "-f", "-", *options, stdin=yaml.safe_dump(manifest))

    def kubectl(
        self, *arguments: str, stdin: str | None = None, cwd: Path | None = None
    ) -> CompletedProcess[str]:
        """Runs kubectl. If kubectl fails, raises no error."""
        kubectl = [str(self.cluster.directory / "bin" / "kubectl"), *arguments]
        return subprocess.run(kubectl, input=stdin, text=True, capture_output=True, check=False, cwd=cwd)

    def delete(self, name: str) -> None:
        self.api.delete(f"/pods/{self.full(name)}").raise_for_status()

    def pods(self) -> dict[str, Manifest]:
        listed = self.api.get("/pods").raise_for_status().json()
        return {item["metadata"]["name"]: item for item in listed["items"]}

    def see(self, name: str) -> Manifest | None:
        answer = self.api.get(f"/pods/{self.full(name)}")
        return None if answer.status_code == httpx.codes.NOT_FOUND else answer.raise_for_status().json()

    def node_of(self, name: str) -> str | None:
        seen = self.see(name)
        return seen["spec"].get("nodeName") if seen else None

    def bound(self, name: str, within: float = 40.0) -> str:
        """Waits until the Pod is bound, and returns the Node."""
        return str(eventually(lambda: self.node_of(name), f"{name} bound", within))

    def attempt(self, name: str) -> int:
        """Returns the number of the current attempt to place the Pod."""
        seen = self.see(name)
        assert seen is not None, f"{name} is gone"
        return int((seen["metadata"].get("annotations") or {}).get("slurm-extender.io/attempt", "1"))

    def condition(self, name: str, kind: str = CONDITION) -> Mapping[str, str]:
        conditions = ((self.see(name) or {}).get("status") or {}).get("conditions") or []
        return next((c for c in conditions if c["type"] == kind), {})

    def events(self, name: str) -> dict[str, str]:
        """Returns the messages of the Events about a Pod, by reason."""
        listed = self.api.get(
            "/events", params={"fieldSelector": f"involvedObject.name={self.full(name)}"}
        )
        return {e["reason"]: e["message"] for e in listed.raise_for_status().json()["items"]}

    def event(self, name: str, reason: str) -> str:
        """Waits for an Event about a Pod, and returns the message. The extender creates an Event a
        second after the cause."""
        return str(eventually(lambda: self.events(name).get(reason), f"Event {reason} about {name}"))

    def gone(self, name: str, within: float = 40.0) -> None:
        eventually(lambda: self.see(name) is None, f"{name} gone", within)

    # The Slurm administrator

    def squeue(self) -> dict[str, QueuedJob]:
        """Returns the live jobs by name. Fails if two jobs have the same name, because no Pod may have
        two jobs."""
        live = [job for job in self.jobs() if job.state != "COMPLETING"]
        named = {job.name: job for job in live}
        assert len(named) == len(live), f"two live jobs of one name: {live}"
        return named

    def jobs(self) -> list[QueuedJob]:
        """Returns all jobs that squeue shows."""
        lines = self.cluster.run_slurm("squeue", "-h", "-o", "%i|%j|%T|%N|%r|%k").stdout.splitlines()
        parts = (line.split("|", 5) for line in lines)
        return [QueuedJob(int(job_id), name, *others) for job_id, name, *others in parts]

    def job_of(self, name: str) -> QueuedJob | None:
        return self.squeue().get(self.job_name(name))

    def queued(self, name: str) -> QueuedJob:
        """Waits until the Pod's job is in Slurm's queue, and returns the job."""

        def see() -> QueuedJob | None:
            job = self.job_of(name)
            return job if job and job.state == "PENDING" else None

        return eventually(see, f"{name} queued")  # type: ignore[return-value]

    def scancel(self, name: str) -> None:
        ids = [str(job.id) for job in self.jobs() if job.name == self.job_name(name)]
        self.cluster.run_slurm("scancel", *ids)

    def scontrol(self, name: str) -> dict[str, str]:
        """Returns the fields of a Pod's job in scontrol."""
        job = self.job_of(name)
        assert job is not None, f"{name} has no job"
        shown = self.cluster.run_slurm("scontrol", "show", "job", str(job.id)).stdout
        return dict(word.split("=", 1) for word in shown.split() if "=" in word)

    def in_the_books(self, job_id: int, books: Mapping[str, str]) -> None:
        """Waits until sacct shows the given values for a job. slurmdbd gets a change a moment after
        slurmctld."""
        options = ("-nPX", f"--jobs={job_id}", f"--format={','.join(books)}")

        def differs() -> str:
            entry = self.cluster.run_slurm("sacct", *options).stdout.strip()
            return "" if entry == "|".join(books.values()) else entry or "no entry"

        eventually_not(differs, f"in the books: {books}")

    # The cluster administrator

    def kubernetes(self) -> tuple[int, int]:
        """Returns the version of kube-apiserver (major, minor). For older versions, tests check that a
        newer feature is missing."""
        told = self.api.get(f"{self.cluster.api_server_url}/version").raise_for_status().json()
        return int(told["major"]), int(told["minor"].rstrip("+"))

    def ready(self) -> tuple[int, Manifest]:
        answer = fetch(f"http://127.0.0.1:{self.cluster.ports['extender-health']}/readyz")
        return answer.status_code, answer.json()

    def problem(self, part: str) -> str:
        """Returns the last problem of a part in the extender's log; empty if /readyz does not name the
        part."""
        if part not in self.ready()[1]["problems"]:
            return ""
        lines = (self.cluster.logs / "extender.log").read_text().splitlines()
        told = (json.loads(line) for line in lines if '"event":"problem"' in line)
        return next((each["error"] for each in reversed(list(told)) if each["part"] == part), "")

    def clean_up(self) -> None:
        """Ends all Pods and jobs. Does not use kubectl, because kubectl starts slowly and there are many
        tests."""
        self.api.delete("/pods", params={"gracePeriodSeconds": 1}).raise_for_status()
        self.cluster.run_slurm("scancel", "-u", "alice")
        eventually(lambda: not self.pods(), "no Pods left", 30)
        eventually(self._no_jobs_are_left, "no jobs left", 30)

    def _no_jobs_are_left(self) -> bool:
        """Returns True if no native job and no job of the namespace is left. Cancels native jobs again:
        if slurmctld was killed right after a cancellation, the job comes back."""
        queue = self.squeue()
        native = [str(job.id) for name, job in queue.items() if SIGN not in name]
        if native:
            self.cluster.run_slurm("scancel", *native)
        return not native and not any(name.endswith(job_name(self.namespace, "")) for name in queue)

    def close(self) -> None:
        self.api.close()


def pod(
    name: str,
    *,
    cpu: str | None = "1",
    memory: str | None = "100Mi",
    gpus: int = 0,
    annotations: Mapping[str, str] | None = None,
    own_annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    host_port: int | None = None,
    scheduler: str = "slurm-scheduler",
    **spec: Any,
) -> Manifest:
    """Returns a Pod that requests Slurm. The keys of `annotations` have no prefix, the keys of
    `own_annotations` are complete."""
    asked = {"cpu": cpu, "memory": memory, "nvidia.com/gpu": str(gpus) if gpus else None}
    requests = {resource: amount for resource, amount in asked.items() if amount}
    container: Manifest = {"name": "c", "image": "busybox", "resources": {"requests": requests}}
    if gpus:
        container["resources"] = {"requests": requests, "limits": {"nvidia.com/gpu": str(gpus)}}
    if host_port is not None:
        container["ports"] = [{"containerPort": host_port, "hostPort": host_port}]
    asked_of_slurm = {PREFIX + key: value for key, value in (annotations or {}).items()}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": dict(labels or {}),
            "annotations": asked_of_slurm | dict(own_annotations or {}),
        },
        "spec": {"schedulerName": scheduler, "containers": [container], **spec},
    }
