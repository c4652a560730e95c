"""What is seen of both systems, as values: a Pod in kube-apiserver, a job in slurmctld."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from extender.placement.identity import PlaceholderKey
from extender.placement.workload import JOB_ID

_ENDED = frozenset(
    {
        "COMPLETED",
        "CANCELLED",
        "FAILED",
        "TIMEOUT",
        "NODE_FAIL",
        "PREEMPTED",
        "BOOT_FAIL",
        "DEADLINE",
        "OUT_OF_MEMORY",
        "COMPLETING",
    }
)


@dataclass(frozen=True, slots=True)
class SeenPod:
    uid: str
    name: str
    node: str
    phase: str
    deleting: bool
    cpus: int
    gpus: int
    job_id: int | None

    @property
    def over(self) -> bool:
        """It will never run again, or is about to go: its job is to end too."""
        return self.deleting or self.phase in ("Succeeded", "Failed")

    def __str__(self) -> str:
        words = (self.phase, self.node and f"on {self.node}", self.job_id and f"job {self.job_id}")
        return " ".join(str(word) for word in (*words, self.deleting and "deleting") if word)


@dataclass(frozen=True, slots=True)
class SeenJob:
    id: int
    name: str
    user: str
    state: str
    node: str
    cpus: int
    uid: str
    """Of the Pod that it stands for; empty for a native job."""

    @property
    def live(self) -> bool:
        return self.state not in _ENDED

    @property
    def running(self) -> bool:
        return self.state == "RUNNING"

    def __str__(self) -> str:
        return f"job {self.id} {self.state} {self.node}".rstrip()


def read_pod(manifest: Mapping[str, Any]) -> SeenPod:
    metadata, spec = manifest["metadata"], manifest["spec"]
    job_id = (metadata.get("annotations") or {}).get(JOB_ID)
    resources = spec["containers"][0]["resources"]
    requests, limits = resources["requests"], resources.get("limits") or {}
    return SeenPod(
        uid=metadata["uid"],
        name=metadata["name"],
        node=spec.get("nodeName") or "",
        phase=(manifest.get("status") or {}).get("phase") or "Pending",
        deleting="deletionTimestamp" in metadata,
        cpus=int(requests["cpu"]),
        gpus=int(limits.get("nvidia.com/gpu", 0)),
        job_id=int(job_id) if job_id else None,
    )


def read_jobs(shown: str) -> list[SeenJob]:
    """Reads what `scontrol -o show jobs` prints."""
    return [_read_job(line) for line in shown.splitlines() if line.startswith("JobId=")]


def _read_job(line: str) -> SeenJob:
    fields = dict(word.split("=", 1) for word in line.split() if "=" in word)
    key = PlaceholderKey.parse(fields.get("AdminComment", ""))
    node = fields.get("NodeList", "(null)")
    return SeenJob(
        id=int(fields["JobId"]),
        name=fields.get("JobName", ""),
        user=fields.get("UserId", "").partition("(")[0],
        state=fields["JobState"],
        node="" if node == "(null)" else node,
        cpus=int(fields.get("NumCPUs", "0").partition("-")[0]),
        uid=key.uid if key else "",
    )
