"""Describes a Node of a pool, with the state that Kubernetes and Slurm report. This module is pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Self

from extender.node_sync.drains import Holder, holder_of
from extender.pools.reserved import any_would_lose
from extender.record.placeholder import Placeholder
from extender.record.states import State
from kubernetes_client.protocol import Manifest
from slurm_client.model import Node as SlurmNode
from slurm_client.model import Power
from slurm_client.reservation import Reservation
from wellknown import number_list
from wellknown.names import ON_HOST, POOL, REVISION
from wellknown.slurmd_pod import CONTAINER, MARK, Assignment

_FAILS: Final = frozenset(
    {
        *("CrashLoopBackOff", "CreateContainerConfigError", "CreateContainerError", "RunContainerError"),
        *("ErrImageNeverPull", "ErrImagePull", "ImagePullBackOff", "InvalidImageName"),
    }
)
"""The kubelet's reasons for containers that do not start, if waiting does not help
(pkg/kubelet/container, images)."""
_ASLEEP: Final = (Power.POWERED_DOWN, Power.POWERING_DOWN)
_AWAY: Final = frozenset({"DOWN", "NOT_RESPONDING", "INVALID_REG", "POWERING_UP", "FUTURE", "UNKNOWN"})
_CLOCKS_S: Final = 5.0
_PATIENCE_S: Final = 600.0
"""A new slurmd has to register within this time (like a Deployment's progressDeadlineSeconds). After
this time, earlier crashes no longer count, because the kubelet's backoff ends."""
_SHARE: Final = 3
"""slurmctld pings each slurmd every third of SlurmdTimeout (src/slurmctld/controller.c). So a
node's last answer may be a third of SlurmdTimeout old when slurmd ends. The new slurmd has the
second third to register. The previous slurmd, if it has to return, has the last third."""
_CRASHES: Final = 2
_SILENT: Final = "its slurmd has not registered at slurmctld"


@dataclass(frozen=True, slots=True)
class SlurmdPod:
    """The slurmd Pod of a Node."""

    pool: str
    revision: str
    ready: bool = False
    leaving: bool = False
    """True while the Pod is being deleted."""
    started: float | None = None
    """Start of slurmd's container, in UNIX seconds; None while the container does not run."""
    made: float | None = None
    """Creation of the Pod, in UNIX seconds."""
    crashes: int = 0
    """Number of restarts of slurmd's container."""
    failing: str = ""
    """The kubelet's message why the Pod does not run; "" without a failure."""

    @classmethod
    def parse(cls, manifest: Manifest) -> Self | None:
        """Returns the slurmd Pod of a manifest, or None if the Pod is no slurmd Pod."""
        metadata, status = manifest["metadata"], manifest.get("status") or {}
        labels = metadata.get("labels") or {}
        if POOL not in labels:
            return None
        conditions = {each["type"]: each.get("status") for each in status.get("conditions") or ()}
        own: Manifest = next(
            (each for each in status.get("containerStatuses") or () if each.get("name") == CONTAINER), {}
        )
        running = (own.get("state") or {}).get("running") or {}
        return cls(
            labels[POOL],
            labels.get(REVISION, ""),
            ready=conditions.get("Ready") == "True",
            leaving="deletionTimestamp" in metadata,
            started=_time(running.get("startedAt")),
            made=_time(metadata.get("creationTimestamp")),
            crashes=own.get("restartCount") or 0,
            failing=_failing(status),
        )


@dataclass(frozen=True, slots=True)
class Member:
    """A Node that is in a pool or matches a pool."""

    node: str
    slurm_name: str
    assigned: Assignment | None = None
    pod: SlurmdPod | None = None
    slurm: SlurmNode | None = None
    """None if Slurm does not know the node."""
    cordoned: bool = False
    ready: bool = True
    """The Node's Ready condition. On a Node that is not ready, a slurmd Pod makes no progress."""
    has_agent: bool = False
    """True if a node agent is on the Node to create the slurmd Pod."""
    problem: str = ""
    """The node agent's message why the agent cannot create or end the slurmd Pod."""
    placeholder_cpus: int = 0
    """Number of CPUs, as Slurm counts CPUs, of placeholders that lose nothing if slurmd restarts."""
    label: str | None = None
    """Value of the Node's label SLURMD_LABEL. By this label, an administrator states where slurmd
    runs."""
    cause: str = ""
    """Reason for a drain that the Node's state requires, or "". When the pool's drain ends, a drain with
    this reason replaces the pool's drain in one write."""
    reservations: tuple[Reservation, ...] = ()
    """The node's reservations that are not over."""
    slurmd_timeout_s: int = 300
    """Slurm's SlurmdTimeout. If 0, slurmctld never sets a silent node DOWN."""
    now: float = 0.0
    """Current time in UNIX seconds."""

    @property
    def revision(self) -> str:
        """The assigned revision; "" if no slurmd is to run."""
        return self.assigned.revision if self.assigned is not None else ""

    @property
    def allocated(self) -> bool:
        """True if any job, native or placeholder, has resources of the node. Slurm cannot delete such a
        node."""
        return self.slurm is not None and self.slurm.has_jobs

    @property
    def ours(self) -> bool:
        """True if the Node has an assignment to a pool or a slurmd Pod, or if a slurmd Pod has created
        the node in Slurm. The assignment may name no revision for now."""
        return self.assigned is not None or self.pod is not None or self.marked

    @property
    def on_host(self) -> bool:
        """True if the Node's label states that slurmd runs on the host."""
        return self.label == ON_HOST

    @property
    def leaves_something(self) -> bool:
        """True if the Node has a slurmd Pod, or is assigned a slurmd Pod. Also True for a dynamic node
        that a slurmd Pod has created in Slurm. Slurm's power saving removes the mark of slurmd Pods from
        a node. So every dynamic node in a power-saving state also counts."""
        if self.pod is not None or self.revision:
            return True
        slurm = self.slurm
        return slurm is not None and slurm.dynamic and (self.marked or slurm.power is not None)

    @property
    def somebody_elses(self) -> bool:
        """True if the node is from slurm.conf or from a slurmd on the host. A node with State=CLOUD
        counts only while it is powered up."""
        if self.slurm is None or self.ours:
            return False
        return not ("CLOUD" in self.slurm.states and self.slurm.power is not None)

    @property
    def kept_out(self) -> bool:
        """True if a person, or slurmctld, has taken the node out of service. If Slurm deleted the node,
        this state would be lost. A node with a rejected registration does not count, because the next
        registration may be valid."""
        if self.slurm is None or "INVALID_REG" in self.slurm.states:
            return False
        return (self.drained or self.down) and holder_of(self.slurm) is Holder.OTHERS

    @property
    def set_down(self) -> bool:
        """True if a person has set the node DOWN without a drain. The node's slurmd still answers,
        unlike the slurmd of a node that slurmctld has set DOWN. Another registration would return
        the node to service (ReturnToService=2)."""
        slurm = self.slurm
        if slurm is None or not slurm.responding or slurm.power is not None or self.pod is None:
            return False
        return self.down and self.kept_out and not self.drained

    @property
    def reserved(self) -> bool:
        """True if a reservation has begun on the node, or would lose the node if Slurm deleted the node.
        Slurm cannot delete a node with a running reservation."""
        return self._has("RESERVED") or any_would_lose(self.reservations)

    @property
    def reserved_later(self) -> bool:
        """True if `reserved` will be true again after the end of the running reservation."""
        later = (each for each in self.reservations if each.recurs or (each.start or 0) > self.now)
        return any_would_lose(later)

    @property
    def in_maintenance(self) -> bool:
        """True during a maintenance reservation, in which no jobs of users start."""
        return self._has("MAINTENANCE")

    def _has(self, state: str) -> bool:
        return self.slurm is not None and state in self.slurm.states

    @property
    def can_be_forgotten(self) -> bool:
        """True if Slurm can delete the node. Slurm never deletes nodes of slurm.conf."""
        return self.slurm is not None and self.slurm.dynamic and not self.allocated

    @property
    def waited_for(self) -> bool:
        """True while Slurm's power saving waits for the node to boot."""
        return self.slurm is not None and self.slurm.power is Power.POWERING_UP

    @property
    def marked(self) -> bool:
        """True if a slurmd Pod has created the node in Slurm."""
        return self.slurm is not None and self.slurm.instance_type.startswith(MARK)

    @property
    def lost_by(self) -> str | None:
        """The pool that has lost the Node, or None. If a Node is recreated, the Node has no annotations,
        but Slurm's node still names the pool whose slurmd Pod created the node. None while the node is
        not DOWN, because a slurmd may still run."""
        slurm = self.slurm
        if slurm is None or not (self.marked and slurm.dynamic) or not self.down or self.on_host:
            return None
        return slurm.instance_type.removeprefix(MARK)

    @property
    def busy(self) -> bool:
        """True if native jobs run, or if a job is completing. A suspended native job counts only on a
        node without placeholders. Beside a placeholder, the suspended job is safe anyway: the node agent
        does not end a slurmd Pod while processes of the job exist, and Slurm does not delete a node that
        has the job."""
        if self.slurm is None:
            return False
        if not self.placeholder_cpus:
            return self.slurm.has_jobs
        return self.slurm.cpus_allocated > self.placeholder_cpus or "COMPLETING" in self.slurm.states

    @property
    def drained(self) -> bool:
        return self.slurm is not None and "DRAIN" in self.slurm.states

    @property
    def drained_by_pool(self) -> bool:
        return self.slurm is not None and self.drained and holder_of(self.slurm) is Holder.POOL

    @property
    def held(self) -> bool:
        """True if Slurm starts no job on the node until a pool or a person clears the drain."""
        return self.slurm is not None and self.drained and holder_of(self.slurm) >= Holder.POOL

    @property
    def reason(self) -> str:
        """Slurm's reason for the state drained or DOWN."""
        return self.slurm.reason if self.slurm is not None else ""

    @property
    def asleep(self) -> bool:
        """True if Slurm's power saving has powered the node down, or is powering the node down."""
        return self.slurm is not None and self.slurm.power in _ASLEEP

    @property
    def down(self) -> bool:
        """True if Slurm starts no jobs on the node until slurmd registers."""
        return self.slurm is None or "DOWN" in self.slurm.states

    @property
    def away(self) -> bool:
        """True if the node's slurmd does not answer slurmctld."""
        return self.slurm is None or not self.slurm.states.isdisjoint(_AWAY)

    @property
    def served_by(self) -> str:
        """The revision of the ready Pod whose slurmd has registered with slurmctld; "" without such
        a Pod."""
        pod = self.pod
        if self.slurm is None or pod is None or not pod.ready or pod.leaving:
            return ""
        started, reported = pod.started, self.slurm.slurmd_started
        registered = started is not None and reported is not None and reported >= started - _CLOCKS_S
        return pod.revision if registered else ""

    @property
    def registered(self) -> bool:
        """True if the slurmd of the assigned revision has registered with slurmctld."""
        return self.served_by == self.revision != ""

    @property
    def serves(self) -> bool:
        """True if the node takes jobs, or if only reasons outside the pool prevent jobs."""
        return self.registered and not self.away and not self.drained_by_pool

    @property
    def can_go_back(self) -> bool:
        """True if an earlier revision has served on the Node, and jobs are on the node. These jobs are
        usually placeholders. If no slurmd answers for SlurmdTimeout, Slurm ends the jobs (NODE_FAIL)."""
        before = self.assigned.before if self.assigned is not None else ""
        return before not in ("", self.revision) and self.allocated

    @property
    def goes_back(self) -> bool:
        """True if the assigned revision fails, and the earlier revision has to return now."""
        return self.can_go_back and bool(self.failing)

    @property
    def failing(self) -> str:
        """The failure of the assigned revision's Pod; "" without a failure."""
        pod = self.pod
        if not self.revision or pod is None:
            return self.problem if self.revision else ""
        if pod.revision != self.revision:  # if an image cannot be pulled, the problem names the revision
            return self.problem if self.revision in self.problem and not pod.leaving else ""
        if pod.leaving:
            return ""
        return pod.failing or self._wrong(pod)

    def _wrong(self, pod: SlurmdPod) -> str:
        """Returns the failure of a slurmd Pod whose containers run, or may still start."""
        started = self.slurm.slurmd_started if self.slurm is not None else None
        if self.slurm is not None and self.registered and "INVALID_REG" in self.slurm.states:
            return f"slurmctld rejects its registration: {self.reason}"
        # If the node can go back, the time counts from the creation of the Pod, because the earlier
        # slurmd has ended before this creation. Otherwise the time counts from the start of slurmd,
        # because the image may still have to be pulled before this start.
        since = (None if self.can_go_back else pod.started) or pod.made
        if since is None:
            return ""
        if self.now - since < _PATIENCE_S and pod.crashes >= _CRASHES:
            return f"slurmd has ended {pod.crashes} times"
        silent = pod.started is None or self.slurm is None
        if silent or (started is not None and started < since - _CLOCKS_S):
            return self._silence(self.now - since)
        return ""

    def _silence(self, lasts_s: float) -> str:
        """Returns an error message about a slurmd that has been silent for `lasts_s`; "" while time
        is left."""
        if lasts_s >= _PATIENCE_S:
            return f"{_SILENT} for {_PATIENCE_S / 60:.0f} minutes"
        hurries = self.can_go_back and 0 < self.slurmd_timeout_s / _SHARE <= lasts_s
        return f"{_SILENT} for a third of SlurmdTimeout ({self.slurmd_timeout_s} s)" if hurries else ""


def placeholder_cpus(placeholders: Iterable[Placeholder], node: str, slurm: SlurmNode) -> int:
    """Returns the number of CPUs of placeholders on a Node, as Slurm counts CPUs. Excludes placeholders
    whose job has ended or whose Pod is being evicted, because a native job may have their CPUs."""
    run = (each for each in placeholders if not (each.job.over or each.misses_job))
    keep = (each for each in run if each.state is not State.EVICTING)
    slots = (member.slot for each in keep for member in each.members)
    cores = (number_list.expand(slot.cores) for slot in slots if slot is not None and slot.node == node)
    return sum(map(len, cores)) * slurm.cpus_per_core


def _time(text: str | None) -> float | None:
    return datetime.fromisoformat(text).timestamp() if text else None


def _failing(status: Manifest) -> str:
    if status.get("phase") in ("Failed", "Succeeded"):
        ended = status.get("reason") or status["phase"], status.get("message") or ""
        return f"the Pod has ended: {' '.join(ended).strip()}"
    listed = (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ()))
    for each in listed:
        waiting = (each.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") in _FAILS:
            return ": ".join(
                filter(None, (f"container {each['name']}", waiting["reason"], _last(each, waiting)))
            )
    return ""


def _last(container: Mapping[str, object], waiting: Mapping[str, str]) -> str:
    """Returns the message of a container's last end. Without a message, returns the exit status, or else
    the message of the waiting container."""
    state = container.get("lastState")
    ended = state.get("terminated") if isinstance(state, dict) else None
    message = " ".join(str((ended or {}).get("message") or "").split())
    code = (ended or {}).get("exitCode")
    if message:
        return message
    return f"exit status {code}" if code is not None else waiting.get("message", "")
