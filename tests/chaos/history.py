"""Observations of both systems as values: Pods, Nodes, jobs, and Slurm nodes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from extender.node_sync.drain_decision import TAINT
from extender.node_sync.drains import PREFIX
from slurm_client import hostlist
from tests.chaos.cluster_spec import ODD
from tests.chaos.cluster_spec import PREFIX as ASKS
from wellknown import number_list
from wellknown.allocation import Allocation
from wellknown.job_key import PlaceholderKey, job_name
from wellknown.names import CONDITION as PLACEHOLDER
from wellknown.names import JOB_ID, SLURM_OUT_OF_SERVICE

NAMESPACE = job_name("default", "")
"""End of the names of all jobs for Pods."""

_OF_A_GANG = "gang-"
"""Start of the uid of a gang that is identified by its name (`extender.pod_request.gang`)."""
_GPUS = re.compile(r"gres[/:]gpu(?:[:][a-z]\w*)?[:=](\d+)")
ENDED_BY_SLURM = frozenset({"TIMEOUT", "PREEMPTED", "DEADLINE", "OUT_OF_MEMORY"})
"""States of a job after an end by Slurm itself. Such an end also ends the Pod. A failure of a node in
Slurm alone ends no Pod."""
_ENDED = ENDED_BY_SLURM | {
    *("NODE_FAIL", "BOOT_FAIL"),
    *("COMPLETED", "CANCELLED", "FAILED", "COMPLETING"),
}


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
    slowly: bool = False
    """True if the Pod is in deletion with a grace period longer than `grace_s`. Such a Pod runs as long
    as the job."""
    odd: str = ""
    """Reason why the Pod can never be bound (`plan.Odd`); empty for other Pods."""
    told: str = ""
    """Reason of the extender's condition on the Pod."""
    managed: bool = True
    """True if Slurm places the Pod. Kubernetes places adopted Pods, and Slurm only counts adopted
    Pods."""
    partitions: frozenset[str] = frozenset()
    """Requested partitions; empty if any partition may be used."""
    grace_s: int = 0
    """The Pod's own grace period: seconds for which containers may run after the start of a deletion."""
    cores: frozenset[int] = frozenset()
    """Granted cores, by the Pod's annotation; empty without them."""
    gang: str = ""
    """Name of the Pod's gang; empty for a single Pod."""
    gang_size: int = 1

    @property
    def workload(self) -> str:
        """Returns the uid of the Pod, or a key of the Pod's gang."""
        return gang_key(self.gang) if self.gang else self.uid

    @property
    def over(self) -> bool:
        """Returns True if the Pod has ended, or is in deletion with a grace period of at most
        `grace_s`."""
        return (self.deleting and not self.slowly) or self.ended

    def exceeds(self, job: SeenJob) -> bool:
        """Returns True if the Pod requests more than the job has."""
        return self.cpus > job.cpus or self.gpus > job.gpus

    def may_be_in(self, partition: str) -> bool:
        """Returns True if the Pod may be in the partition."""
        return not self.partitions or partition in self.partitions

    @property
    def ended(self) -> bool:
        return self.phase in ("Succeeded", "Failed")

    def __str__(self) -> str:
        words = (self.phase, self.node and f"on {self.node}", self.job_id and f"job {self.job_id}")
        more = (self.deleting and "deleting", not self.node and self.told)
        return " ".join(str(word) for word in (*words, *more) if word)


@dataclass(frozen=True, slots=True)
class SeenNode:
    """A Node, and the Slurm node of the same name."""

    name: str
    cordoned: bool
    told: bool
    """True if the Node's condition says that the node is out of service."""
    tainted: bool
    """True if the Node has the taint of a node out of service. The Node needs no taint if the extender
    drained the node."""
    in_service: bool
    """True if the node accepts jobs."""
    reason: str
    """Reason why the node does not accept jobs."""

    @property
    def ours(self) -> bool:
        """Returns True if the extender drained the node."""
        return not self.in_service and self.reason.startswith(PREFIX)


@dataclass(frozen=True, slots=True)
class SeenJob:
    id: int
    name: str
    user: str
    state: str
    node: str
    cpus: int
    uid: str
    """The placeholder's workload (`SeenPod.workload`); empty for a native job."""
    partition: str = ""
    gpus: int = 0
    """Number of requested GPUs."""
    held: bool = False
    """True if the job is held, so that Slurm does not start the job."""
    cores: frozenset[int] = frozenset()
    """Cores on the job's only node; empty if Slurm names none."""

    @property
    def live(self) -> bool:
        return self.state not in _ENDED

    @property
    def running(self) -> bool:
        return self.state == "RUNNING"

    def runs_on(self, node: str) -> bool:
        """Returns True if the job runs, and has resources of a node."""
        return self.running and node in hostlist.expand(self.node)

    @property
    def there(self) -> bool:
        """Returns True if processes of the job may be on the node."""
        return self.state in ("RUNNING", "CONFIGURING", "COMPLETING")

    def __str__(self) -> str:
        size = f"{self.cpus} CPUs" + (f", {self.gpus} GPUs" if self.gpus else "")
        cores = f", cores {number_list.compress(self.cores)}" if self.cores else ""
        where = self.node or self.partition
        return f"job {self.id} {self.state} {where}".rstrip() + f": {size}{cores}"


def gang_key(gang: str) -> str:
    """Returns the key of a gang. The name is enough, because no two gangs of a run have the same
    name."""
    return f"gang {gang}"


def read_pod(manifest: Mapping[str, Any]) -> SeenPod:
    metadata, spec = manifest["metadata"], manifest["spec"]
    annotations = metadata.get("annotations") or {}
    job_id, status = annotations.get(JOB_ID), manifest.get("status") or {}
    grace, asked = spec["terminationGracePeriodSeconds"], annotations.get(f"{ASKS}partition", "")
    resources, allocation = spec["containers"][0]["resources"], Allocation.parse(annotations)
    requests, limits = resources["requests"], resources.get("limits") or {}
    return SeenPod(
        uid=metadata["uid"],
        name=metadata["name"],
        node=spec.get("nodeName") or "",
        phase=status.get("phase") or "Pending",
        deleting="deletionTimestamp" in metadata,
        cpus=int(requests["cpu"]),
        gpus=int(limits.get("nvidia.com/gpu", 0)),
        job_id=int(job_id) if job_id else None,
        slowly=metadata.get("deletionGracePeriodSeconds", 0) > grace,
        odd=(metadata.get("labels") or {}).get(ODD, ""),
        told=_told(manifest),
        managed=spec.get("schedulerName") == "slurm-scheduler",
        partitions=frozenset(filter(None, asked.split(","))),
        grace_s=grace,
        cores=frozenset(number_list.expand(allocation.cores)) if allocation else frozenset(),
        gang=annotations.get(f"{ASKS}gang", ""),
        gang_size=int(annotations.get(f"{ASKS}gang-size", 1)),
    )


def _told(manifest: Mapping[str, Any]) -> str:
    conditions = (manifest.get("status") or {}).get("conditions") or ()
    reasons = (each.get("reason") or "" for each in conditions if each["type"] == PLACEHOLDER)
    return next(reasons, "")


def read_nodes(shown: str, manifests: Iterable[Mapping[str, Any]]) -> list[SeenNode]:
    """Reads the output of `scontrol -o show nodes`, and the Nodes of the same names."""
    slurms = {line.split()[0]: line for line in shown.splitlines() if line.startswith("NodeName=")}
    return [
        _read_node(slurms[line], manifest)
        for manifest in manifests
        if (line := f"NodeName={manifest['metadata']['name']}") in slurms
    ]


def _read_node(line: str, manifest: Mapping[str, Any]) -> SeenNode:
    state = set(re.split(r"[+*]", re.search(r" State=(\S+)", line)[1]))  # type: ignore[index]
    reason = re.search(r" Reason=(.*?) \[", line)
    conditions = {each["type"]: each for each in manifest["status"].get("conditions") or ()}
    taints = {taint["key"] for taint in manifest["spec"].get("taints") or ()}
    return SeenNode(
        name=manifest["metadata"]["name"],
        cordoned=bool(manifest["spec"].get("unschedulable")),
        told=conditions.get(SLURM_OUT_OF_SERVICE, {}).get("status") == "True",
        tainted=TAINT.key in taints,
        in_service=not state & {"DRAIN", "DOWN", "FAIL"},
        reason=reason[1] if reason else "",
    )


def read_jobs(shown: str, uid_of: Callable[[str], str] = lambda _: "") -> list[SeenJob]:
    """Reads the output of `scontrol -d -o show jobs`. `uid_of` returns the uid for the name of a Pod,
    for jobs without a key."""
    return [_read_job(line, uid_of) for line in shown.splitlines() if line.startswith("JobId=")]


def _workload_of(key: PlaceholderKey) -> str:
    return gang_key(key.name) if key.uid.startswith(_OF_A_GANG) else key.uid


def pod_of(job: str) -> str:
    """Returns the name of the Pod in a job's name; empty for a native job."""
    return job.removesuffix(NAMESPACE) if job.endswith(NAMESPACE) else ""


def _read_job(line: str, uid_of: Callable[[str], str]) -> SeenJob:
    fields = dict(word.split("=", 1) for word in line.split() if "=" in word)
    key = PlaceholderKey.parse(fields.get("AdminComment", ""))
    node, name = fields.get("NodeList", "(null)"), fields.get("JobName", "")
    named = uid_of(pod) if (pod := pod_of(name)) else ""
    per_node, per_task = fields.get("TresPerNode", ""), fields.get("TresPerTask", "")
    return SeenJob(
        id=int(fields["JobId"]),
        name=name,
        user=fields.get("UserId", "").partition("(")[0],
        state=fields["JobState"],
        node="" if node == "(null)" else node,
        cpus=int(fields.get("NumCPUs", "0").partition("-")[0]),
        uid=_workload_of(key) if key else named,
        partition=fields.get("Partition", ""),
        gpus=sum(int(count) for count in _GPUS.findall(f"{per_node},{per_task}")),
        held=fields.get("Priority") == "0",
        cores=frozenset(number_list.expand(fields.get("CPU_IDs", ""))),
    )
