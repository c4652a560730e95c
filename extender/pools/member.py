"""A Node of a pool as both systems have it: pure."""

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
"""The kubelet's reasons of containers that waiting does not help (pkg/kubelet/container, images)."""
_ASLEEP: Final = (Power.POWERED_DOWN, Power.POWERING_DOWN)
_AWAY: Final = frozenset({"DOWN", "NOT_RESPONDING", "INVALID_REG", "POWERING_UP", "FUTURE", "UNKNOWN"})
_CLOCKS_S: Final = 5.0
_PATIENCE_S: Final = 600.0
"""How long a slurmd may take to tell of itself (a Deployment's progressDeadlineSeconds), and after which
an earlier crash counts no more (the kubelet's back-off ends then)."""
_SHARE: Final = 3
"""slurmctld asks a slurmd each third of SlurmdTimeout (src/slurmctld/controller.c). So a node's last
answer may be a third old when slurmd ends: the new slurmd has the second third, and the slurmd before,
if it has to come back, the last."""
_CRASHES: Final = 2
_SILENT: Final = "its slurmd has not told slurmctld of itself"


@dataclass(frozen=True, slots=True)
class SlurmdPod:
    """The slurmd Pod that a Node has."""

    pool: str
    revision: str
    ready: bool = False
    leaving: bool = False
    """Whether it is being deleted."""
    started: float | None = None
    """When slurmd's container was started, in UNIX seconds; None while it does not run."""
    made: float | None = None
    """When the Pod was made, in UNIX seconds."""
    crashes: int = 0
    """How many times slurmd's container has ended by itself."""
    failing: str = ""
    """Why it does not come to run, by the kubelet's words."""

    @classmethod
    def parse(cls, manifest: Manifest) -> Self | None:
        """Returns the slurmd Pod that a Pod is, None where it is none."""
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
    """A Node that is to be in a pool, or is in it."""

    node: str
    slurm_name: str
    assigned: Assignment | None = None
    pod: SlurmdPod | None = None
    slurm: SlurmNode | None = None
    """None where Slurm does not know it."""
    cordoned: bool = False
    ready: bool = True
    """Whether its kubelet says so: nothing becomes of a slurmd Pod on another."""
    has_agent: bool = False
    """Whether a node agent is there to make its Pod."""
    problem: str = ""
    """Why the node agent cannot make or end its Pod, in the agent's words."""
    placeholder_cpus: int = 0
    """The CPUs of placeholders that have nothing to lose by a restart of slurmd, as Slurm counts."""
    label: str | None = None
    """Where its slurmd runs by the word of a person: the value of the Node's label SLURMD_LABEL."""
    cause: str = ""
    """Reason of a drain for its Node's state, or "": replaces the pool's drain in one write."""
    reservations: tuple[Reservation, ...] = ()
    """The reservations of its node that are not over."""
    slurmd_timeout_s: int = 300
    """Slurm's SlurmdTimeout; 0: slurmctld gives no node up."""
    now: float = 0.0
    """UNIX seconds."""

    @property
    def revision(self) -> str:
        """The revision that it is to run; "" where it is to run none."""
        return self.assigned.revision if self.assigned is not None else ""

    @property
    def allocated(self) -> bool:
        """Whether any job has a part of it, placeholders too: Slurm cannot forget it then."""
        return self.slurm is not None and self.slurm.has_jobs

    @property
    def ours(self) -> bool:
        """Whether a slurmd Pod is there, is to be there or to come back, or has made its node."""
        return self.assigned is not None or self.pod is not None or self.marked

    @property
    def on_host(self) -> bool:
        """Whether a person has said that its slurmd runs on the host."""
        return self.label == ON_HOST

    @property
    def leaves_something(self) -> bool:
        """Whether its slurmd Pod is there, is to be there, or has made a node that Slurm can delete.
        Power saving takes the mark away."""
        if self.pod is not None or self.revision:
            return True
        slurm = self.slurm
        return slurm is not None and slurm.dynamic and (self.marked or slurm.power is not None)

    @property
    def somebody_elses(self) -> bool:
        """Whether its node is of slurm.conf or of a slurmd on the host; State=CLOUD counts when up."""
        if self.slurm is None or self.ours:
            return False
        return not ("CLOUD" in self.slurm.states and self.slurm.power is not None)

    @property
    def kept_out(self) -> bool:
        """Whether a person, or slurmctld, has it out of service: Slurm would forget that with the node.
        What is wrong with a registration is not kept: another one may be right."""
        if self.slurm is None or "INVALID_REG" in self.slurm.states:
            return False
        return (self.drained or self.down) and holder_of(self.slurm) is Holder.OTHERS

    @property
    def set_down(self) -> bool:
        """Whether a person has it DOWN, and not drained: its slurmd answers, as none does that slurmctld
        has given up. Another one that registers would have it in service again (ReturnToService=2)."""
        slurm = self.slurm
        if slurm is None or not slurm.responding or slurm.power is not None or self.pod is None:
            return False
        return self.down and self.kept_out and not self.drained

    @property
    def reserved(self) -> bool:
        """Whether a reservation has begun there, so that Slurm cannot forget it, or would lose it."""
        return self._has("RESERVED") or any_would_lose(self.reservations)

    @property
    def reserved_later(self) -> bool:
        """Whether that will be so when the reservation that has begun is over."""
        later = (each for each in self.reservations if each.recurs or (each.start or 0) > self.now)
        return any_would_lose(later)

    @property
    def in_maintenance(self) -> bool:
        """Whether a maintenance reservation has begun there: jobs of users do not start then."""
        return self._has("MAINTENANCE")

    def _has(self, state: str) -> bool:
        return self.slurm is not None and state in self.slurm.states

    @property
    def can_be_forgotten(self) -> bool:
        """Whether Slurm can delete it: nodes of slurm.conf stay."""
        return self.slurm is not None and self.slurm.dynamic and not self.allocated

    @property
    def waited_for(self) -> bool:
        """Whether Slurm's power saving waits for it to boot."""
        return self.slurm is not None and self.slurm.power is Power.POWERING_UP

    @property
    def marked(self) -> bool:
        """Whether its node was made by a slurmd Pod."""
        return self.slurm is not None and self.slurm.instance_type.startswith(MARK)

    @property
    def lost_by(self) -> str | None:
        """The pool whose slurmd Pod has made its node, where that is DOWN: it was this pool's Node, and
        was made anew, without annotation. None: it was not, or a slurmd may be there."""
        slurm = self.slurm
        if slurm is None or not (self.marked and slurm.dynamic) or not self.down or self.on_host:
            return None
        return slurm.instance_type.removeprefix(MARK)

    @property
    def busy(self) -> bool:
        """Returns True if native jobs are there, or if a job ends. A suspended native job is seen if no
        placeholder is there. Beside a placeholder, the node agent ends no slurmd Pod with the job's
        processes, and Slurm deletes no node with the job."""
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
        """Whether Slurm certainly starts no job there until a pool or a person decides otherwise."""
        return self.slurm is not None and self.drained and holder_of(self.slurm) >= Holder.POOL

    @property
    def reason(self) -> str:
        """Slurm's words why it is drained or down."""
        return self.slurm.reason if self.slurm is not None else ""

    @property
    def asleep(self) -> bool:
        """Whether Slurm's power saving has it off, or is about to."""
        return self.slurm is not None and self.slurm.power in _ASLEEP

    @property
    def down(self) -> bool:
        """Whether Slurm starts no jobs there before slurmd tells of itself."""
        return self.slurm is None or "DOWN" in self.slurm.states

    @property
    def away(self) -> bool:
        """Whether its slurmd does not answer slurmctld."""
        return self.slurm is None or not self.slurm.states.isdisjoint(_AWAY)

    @property
    def served_by(self) -> str:
        """The revision of the ready Pod whose slurmd has told slurmctld of itself; "" without one."""
        pod = self.pod
        if self.slurm is None or pod is None or not pod.ready or pod.leaving:
            return ""
        started, told = pod.started, self.slurm.slurmd_started
        registered = started is not None and told is not None and told >= started - _CLOCKS_S
        return pod.revision if registered else ""

    @property
    def registered(self) -> bool:
        """Whether the slurmd of its assignment has told slurmctld of itself."""
        return self.served_by == self.revision != ""

    @property
    def serves(self) -> bool:
        """Whether it takes jobs, or would but for other reasons than its pool's."""
        return self.registered and not self.away and not self.drained_by_pool

    @property
    def can_go_back(self) -> bool:
        """Whether placeholders are here, and a revision before that served. The placeholders end with
        their node (NODE_FAIL) if no slurmd answers for SlurmdTimeout."""
        before = self.assigned.before if self.assigned is not None else ""
        return before not in ("", self.revision) and self.allocated

    @property
    def goes_back(self) -> bool:
        """Whether the revision before comes back now."""
        return self.can_go_back and bool(self.failing)

    @property
    def failing(self) -> str:
        """Why the Pod of its assignment does not come to serve; empty where nothing is wrong."""
        pod = self.pod
        if not self.revision or pod is None:
            return self.problem if self.revision else ""
        if pod.revision != self.revision:  # the agent names a revision whose images it cannot get
            return self.problem if self.revision in self.problem and not pod.leaving else ""
        if pod.leaving:
            return ""
        return pod.failing or self._wrong(pod)

    def _wrong(self, pod: SlurmdPod) -> str:
        """Returns why a slurmd Pod whose containers run, or may come to, is of no use."""
        told = self.slurm.slurmd_started if self.slurm is not None else None
        if self.slurm is not None and self.registered and "INVALID_REG" in self.slurm.states:
            return f"slurmctld does not take its registration: {self.reason}"
        # The slurmd before has ended when the Pod was made; the image may have to be pulled then.
        since = (None if self.can_go_back else pod.started) or pod.made
        if since is None:
            return ""
        if self.now - since < _PATIENCE_S and pod.crashes >= _CRASHES:
            return f"slurmd has ended {pod.crashes} times"
        silent = pod.started is None or self.slurm is None
        if silent or (told is not None and told < since - _CLOCKS_S):
            return self._silence(self.now - since)
        return ""

    def _silence(self, lasts_s: float) -> str:
        """Returns the failure of a slurmd that has been silent for so long, "" if there is time left."""
        if lasts_s >= _PATIENCE_S:
            return f"{_SILENT} for {_PATIENCE_S / 60:.0f} minutes"
        hurries = self.can_go_back and 0 < self.slurmd_timeout_s / _SHARE <= lasts_s
        return f"{_SILENT} for a third of SlurmdTimeout ({self.slurmd_timeout_s} s)" if hurries else ""


def placeholder_cpus(placeholders: Iterable[Placeholder], node: str, slurm: SlurmNode) -> int:
    """Returns the CPUs that these placeholders have on a Node, as Slurm counts them there. Leaves out
    placeholders whose job has ended, or whose Pod is being evicted: a native job may have their CPUs."""
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
    """Returns what a container said when it ended last, else why it waits."""
    state = container.get("lastState")
    ended = state.get("terminated") if isinstance(state, dict) else None
    said = " ".join(str((ended or {}).get("message") or "").split())
    code = (ended or {}).get("exitCode")
    if said:
        return said
    return f"exit status {code}" if code is not None else waiting.get("message", "")
