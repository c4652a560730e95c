"""Simulates Slurm, kubelets and node agents for tests of `extender.pools.roll_out`.

The simulation counts the native jobs that were running when their slurmd ended. The simulation also
records the greatest number of nodes that the pool had out of service at once.
"""

from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from extender.node_sync.drains import POOL_PREFIX, PREFIX
from extender.pools.member import Member, SlurmdPod
from extender.pools.pool import Pool
from extender.pools.roll_out import Action, Assign, Delete, Drain, PoolState, decide
from slurm_client.model import Node as SlurmNode
from slurm_client.reservation import Reservation
from wellknown.names import ON_HOST
from wellknown.slurmd_pod import Assignment

POOL = Pool("gpu", {"gpu": "yes"}, data={"template": 1})
CPUS = 8
SLURMD_TIMEOUT_S = 300
PERSON = "disk is loud"
"""Reason of a drain by a person."""


@dataclass
class Machine:
    """A Node, its slurmd, and its node in Slurm."""

    name: str
    matches: bool = True
    assigned: Assignment | None = None
    running: Assignment | None = None
    """The assignment from which the current slurmd Pod was made."""
    age: int = 0
    """Age of the slurmd Pod, in steps."""
    images: set[str] = field(default_factory=set)
    """Revisions whose images the Node has pulled."""
    in_slurm: bool = False
    states: set[str] = field(default_factory=set)
    reason: str = ""
    started: int | None = None
    """Start time of slurmd at the last registration."""
    jobs: int = 0
    """Number of CPUs of native jobs on the node."""
    pods: int = 0
    """Number of CPUs of placeholders on the node."""
    told: str = ""
    """Digest of the configuration with which slurmd has registered the node in Slurm."""
    static: bool = False
    """True if the node is from slurm.conf."""
    mark: str = ""
    cordoned: bool = False
    bad: bool = False
    """True if the extender drains the node because of a condition of the Node."""
    deleted: bool = False
    """True while the slurmd Pod is being deleted. The deletion waits for the end of the jobs."""
    made_at: int = 0
    silent: bool = False
    """True if slurmd does not answer slurmctld."""
    off: bool = False
    """True if the machine is off. Then neither slurmd nor the kubelet answers."""
    label: str | None = None
    """Value of the label by which a person states where slurmd runs. "host": slurmd runs on the host."""
    host_slurmd: bool = False
    """True if slurmd of the host runs."""
    reservations: list[Reservation] = field(default_factory=list)
    lost_jobs: int = 0
    heard_at: int = 0
    """Time of slurmd's last answer to slurmctld."""
    lost_pods: int = 0
    """Number of times that placeholders ended with NODE_FAIL, although only the pool made slurmd end."""
    disturbed: bool = False
    """True if, since the last answer of slurmd, a cordon, an outage or a silent slurmd has disturbed the
    node."""

    @property
    def fits(self) -> bool:
        """True if the Node should be in the pool."""
        return self.matches and self.label != ON_HOST


class World:
    """Simulates the cluster in steps. In each step, the agents and kubelets act first, and then the
    controller of pools."""

    def __init__(self, machines: int, pool: Pool = POOL, seed: int = 0) -> None:
        self.pool = pool
        self.machines = {f"n{number:04}": Machine(f"n{number:04}") for number in range(machines)}
        self.bad: set[str] = set()
        """Revisions with which slurmd crashes."""
        self.refused: set[str] = set()
        """Revisions for which slurmctld rejects the registration of slurmd."""
        self.mute: set[str] = set()
        """Revisions with a slurmd that runs, but never registers."""
        self.unpullable: set[str] = set()
        """Revisions whose images cannot be pulled. The agent ends no slurmd for such a revision."""
        self.now = 1000
        self.random = Random(seed)
        self.state = PoolState()
        self.actions: list[Action] = []
        self.got_bad: set[str] = set()
        """Machines with a bad revision, now or earlier."""
        self.most_out = 0
        """Greatest number of nodes out of service at once because of the pool."""

    def change(self, **template: Any) -> None:
        """Changes the template in the pool file."""
        self.pool = replace(self.pool, data=template)

    def member(self, machine: Machine) -> Member:
        slurm = None
        if machine.in_slurm:
            used = machine.jobs + machine.pods
            made = set() if machine.static else {"DYNAMIC_NORM"}
            states = frozenset(machine.states | made | ({"MIXED"} if used else {"IDLE"}))
            slurm = SlurmNode(
                machine.name,
                states,
                CPUS,
                1000,
                reason=machine.reason,
                cpus_allocated=used,
                slurmd_started=machine.started,
                instance_type=machine.mark,
            )
        return Member(
            machine.name,
            machine.name,
            assigned=machine.assigned,
            pod=self._pod(machine),
            slurm=slurm,
            cordoned=machine.cordoned,
            ready=not machine.off,
            has_agent=True,
            problem=self._problem(machine),
            placeholder_cpus=machine.pods,
            label=machine.label,
            cause=f"{PREFIX}condition bad" if machine.bad else "",
            reservations=tuple(machine.reservations),
            slurmd_timeout_s=SLURMD_TIMEOUT_S,
            now=float(self.now),
        )

    def _problem(self, machine: Machine) -> str:
        revision = machine.assigned.revision if machine.assigned is not None else ""
        pulls = machine.running is not None and machine.running.revision != revision
        lacks = revision in self.unpullable - machine.images
        return f"images of {revision}: not pulled" if pulls and lacks else ""

    def _pod(self, machine: Machine) -> SlurmdPod | None:
        running = machine.running
        if running is None:
            return None
        crashes = running.revision in self.bad or running.revision not in machine.images
        up = machine.age >= 1 and not crashes and not machine.off
        return SlurmdPod(
            running.pool,
            running.revision,
            ready=up,
            started=float(machine.made_at) if up else None,
            made=float(machine.made_at),
            leaving=machine.deleted,
            failing="CrashLoopBackOff" if crashes and machine.age >= 2 else "",
        )

    def step(self) -> None:
        self.now += 10
        for machine in self.machines.values():
            if not machine.off:
                self._agent(machine)
            self._host(machine)
            self._slurmd(machine)
            self._node_sync(machine)
            self._reserve(machine)
        self.decide()

    def decide(self) -> None:
        members = [self.member(each) for each in self.machines.values() if self._is_seen(each)]
        matching = frozenset(each.name for each in self.machines.values() if each.fits)
        decision = decide(self.pool, members, matching)
        self.state = decision.state
        self.actions = list(decision.actions)
        for action in decision.actions:
            self._do(action)
        own = [
            each
            for each in self.machines.values()
            if each.in_slurm and each.reason.startswith(POOL_PREFIX)
        ]
        self.most_out = max(self.most_out, sum(not each.cordoned and each.fits for each in own))

    def _is_seen(self, machine: Machine) -> bool:
        """Returns True if the controller considers the machine as a Node of the pool."""
        return machine.fits or bool(machine.assigned or machine.running)

    def _do(self, action: Action) -> None:
        machine = self.machines[action.member.node]
        match action:
            case Assign(_, assignment):
                down = machine.reason == PERSON and machine.states & {"DOWN", "DRAIN"} == {"DOWN"}
                # A node that slurmctld has set DOWN, because slurmd is silent, looks like a node that a
                # person has set DOWN.
                silent = machine.off or "NOT_RESPONDING" in machine.states
                assert silent or not (down and machine.running), (
                    "what a person has set DOWN would serve again"
                )
                machine.assigned = assignment
            case Drain(_, reason) if reason:
                assert machine.in_slurm
                assert action.member.ours, "somebody else's node is drained"
                assert not machine.host_slurmd, "the node of a slurmd on the host is drained"
                machine.states |= {"DRAIN"}
                machine.reason = reason
            case Drain():
                assert machine.reason.startswith(POOL_PREFIX), "a person's drain is taken back"
                machine.states -= {"DRAIN"}
                machine.reason = ""
            case Delete():
                assert not machine.jobs
                assert not machine.pods
                assert machine.running is None
                assert not machine.static
                assert action.member.ours, "somebody else's node is deleted"
                assert not machine.host_slurmd, "the node of a slurmd on the host is deleted"
                assert "RESERVED" not in machine.states
                assert all(each.follows for each in machine.reservations), "a reservation is lost"
                assert machine.reason != PERSON or not machine.fits, "a person's drain is forgotten"
                machine.in_slurm, machine.states, machine.reason = False, set(), ""

    def _agent(self, machine: Machine) -> None:
        if machine.deleted:  # as in node_agent/slurmd/stop.sh
            if machine.in_slurm and not machine.states & {
                "DRAIN",
                "DOWN",
                "POWERED_DOWN",
                "POWERING_UP",
            }:
                machine.states |= {"DRAIN"}
                machine.reason = f"{POOL_PREFIX}gpu: its slurmd Pod is being deleted"
            elif not machine.jobs or "POWERING_UP" in machine.states:  # the jobs have not started
                machine.running, machine.deleted = None, False
            return
        assigned = machine.assigned if machine.assigned and machine.assigned.revision else None
        same = (machine.running and machine.running.revision) == (assigned and assigned.revision)
        if same or self._problem(machine):
            machine.age += 1
            return
        if machine.running is not None:
            if machine.jobs and "POWERING_UP" not in machine.states:
                machine.lost_jobs += 1
            machine.deleted = True
            return
        machine.running, machine.age, machine.made_at = assigned, 0, self.now
        machine.images |= {assigned.revision} - self.unpullable if assigned is not None else set()
        if assigned is not None and assigned.revision in self.bad:
            self.got_bad.add(machine.name)

    def _host(self, machine: Machine) -> None:
        """Plays a person who runs slurmd on the host. If the Node has the label, the person starts
        slurmd as soon as the pool has no slurmd Pod there and Slurm has no node of this name. After the
        label is removed, the person deletes the node in Slurm."""
        member = self.member(machine)
        gone = not (machine.in_slurm or machine.running or member.revision)
        if machine.label == ON_HOST and gone:
            machine.host_slurmd = machine.in_slurm = True
            machine.states, machine.reason, machine.mark = set(), "", ""
        elif machine.label != ON_HOST and machine.host_slurmd and not machine.jobs + machine.pods:
            machine.host_slurmd = machine.in_slurm = False
            machine.states, machine.reason = set(), ""

    def _slurmd(self, machine: Machine) -> None:
        pod = self._pod(machine)
        if pod is None or not pod.ready or machine.silent or pod.revision in self.mute:
            self._give_up(machine)
            return
        machine.heard_at, machine.disturbed = self.now, machine.disturbed and machine.deleted
        assert machine.running is not None
        if "POWERING_UP" in machine.states and not machine.running.boots:
            return
        if not machine.in_slurm:
            machine.in_slurm, machine.states, machine.reason = True, set(), ""
            machine.told, machine.mark = machine.running.conf, "slurm-extender/gpu"
        machine.states -= {"POWERING_UP", "INVALID_REG", "NOT_RESPONDING"}
        if machine.started != machine.made_at + 1 and "DOWN" in machine.states:  # ReturnToService=2
            machine.states -= {"DOWN"}
            machine.reason = machine.reason if "DRAIN" in machine.states else ""
        if machine.running.revision in self.refused:
            machine.states |= {"INVALID_REG", "DRAIN"}
            machine.reason = "gres/gpu count (0 < 2)"
        machine.started = machine.made_at + 1

    def _give_up(self, machine: Machine) -> None:
        """Sets a silent node DOWN, and ends its placeholders, as slurmctld does. Waits only two thirds
        of SlurmdTimeout, because slurmd's last answer may be a third of SlurmdTimeout older than
        slurmd's end."""
        machine.disturbed |= machine.cordoned or machine.off or machine.silent
        silent = self.now - machine.heard_at >= SLURMD_TIMEOUT_S * 2 / 3
        if machine.in_slurm and machine.mark and machine.pods and silent:
            machine.pods = 0
            machine.lost_pods += not machine.disturbed
            machine.states |= {"DOWN", "NOT_RESPONDING"}
            machine.reason = machine.reason or "Not responding"

    def _node_sync(self, machine: Machine) -> None:
        if not machine.in_slurm:
            return
        wrong = machine.cordoned or machine.bad
        if wrong and not machine.states & {"DRAIN", "DOWN"}:
            machine.states |= {"DRAIN"}
            why = "cordoned in Kubernetes" if machine.cordoned else "condition bad"
            machine.reason = f"{PREFIX}{why}"
        elif not wrong and machine.reason.startswith(PREFIX):
            machine.states -= {"DRAIN"}
            machine.reason = ""

    def reserve(self, machine: Machine, *flags: str, begins_in: int, lasts: int) -> None:
        """Reserves the node for a person. With the flag ALL_NODES, reserves all nodes."""
        start = self.now + begins_in
        names = (machine.name,)
        made = Reservation("course", names, start, start + lasts, frozenset(flags))
        machine.reservations.append(made)

    def _reserve(self, machine: Machine) -> None:
        """Starts and ends reservations, as Slurm does. A recurring reservation starts again."""
        left = [each for each in machine.reservations if not each.over(self.now)]
        for index, each in enumerate(left):
            start, end = each.start or 0, each.end or 0
            if end <= self.now:
                left[index] = replace(
                    each, start=start + 10 * (end - start), end=end + 10 * (end - start)
                )
        begun = {"RESERVED"} if any((each.start or 0) <= self.now for each in left) else set()
        in_maintenance = (
            {"MAINTENANCE"} if any("MAINT" in each.flags for each in left) and begun else set()
        )
        if machine.reservations and machine.in_slurm:
            machine.states = machine.states - {"RESERVED", "MAINTENANCE"} | begun | in_maintenance
        machine.reservations = left

    def start_job(self, machine: Machine) -> None:
        """Starts a native job or a placeholder, if Slurm would start a job on the node. A native job
        that starts without a slurmd counts as lost."""
        if machine.in_slurm and not machine.states - {"RESERVED"} and not machine.jobs:
            if self.random.random() < 0.3:
                machine.pods = 1
                return
            machine.jobs = CPUS - machine.pods
            pod = self._pod(machine)
            if not machine.host_slurmd and (pod is None or not pod.ready):
                machine.lost_jobs += 1

    def undrain(self, machine: Machine) -> None:
        """Clears the state that a person has set. Slurm starts no job on the node before slurmd answers
        (_require_node_reg)."""
        if machine.reason == PERSON:
            machine.states, machine.reason = {"NOT_RESPONDING"}, ""

    def something_happens(self) -> None:  # noqa: C901, PLR0912 -- a table
        """Changes one randomly chosen thing: a machine, or the pool's file."""
        machine, luck = self.random.choice(list(self.machines.values())), self.random.random
        match self.random.randrange(12):
            case 0 | 1 | 2:
                self.start_job(machine)
            case 3 | 4:
                machine.jobs = machine.pods = 0
            case 5:
                machine.cordoned = not machine.cordoned
            case 6:
                machine.matches = luck() < 0.8
                machine.deleted = machine.running is not None and luck() < 0.2
                machine.disturbed |= machine.deleted
                machine.label = ON_HOST if luck() < 0.2 else None
            case 7 if not machine.states and machine.in_slurm:
                machine.states, machine.reason = {"DRAIN" if luck() < 0.5 else "DOWN"}, PERSON
                if "DOWN" in machine.states:
                    machine.jobs = machine.pods = 0
            case 7:
                self.undrain(machine)
            case 8:
                machine.bad = luck() < 0.3
            case 9 if luck() < 0.3:
                self.change(template=self.now, slurm={"weight": self.random.randrange(1, 3)})
                if luck() < 0.4:
                    wrong = self.random.choice((self.bad, self.mute, self.unpullable))
                    wrong.add(self.pool.assignment.revision)
            case 10 if not machine.reservations:
                flags = [flag for flag in ("MAINT", "DAILY", "ALL_NODES") if luck() < 0.3]
                self.reserve(machine, *flags, begins_in=int(300 * luck()), lasts=int(300 * luck()))
            case 10:
                machine.reservations = []
                machine.states -= {"RESERVED", "MAINTENANCE"}
            case 11 if not machine.off and luck() < 0.3:
                self.turn_off(machine)
            case 11 if machine.off:
                self.turn_on(machine)

    def turn_off(self, machine: Machine) -> None:
        """Turns a machine off, so that its jobs end and slurmctld sets the node DOWN."""
        machine.off = machine.silent = True
        machine.jobs = machine.pods = 0
        if machine.in_slurm:
            machine.states |= {"DOWN", "NOT_RESPONDING"}
            machine.reason = machine.reason or "Not responding"

    def turn_on(self, machine: Machine) -> None:
        """Turns a machine on, so that the kubelet starts the containers again."""
        machine.off = machine.silent = False
        machine.made_at = self.now

    def states_of(self, machine: Machine) -> set[str]:
        return set(machine.states)

    def settle(self, steps: int = 60) -> None:
        for _ in range(steps):
            self.step()

    @property
    def lost_jobs(self) -> int:
        return sum(each.lost_jobs for each in self.machines.values())

    @property
    def lost_pods(self) -> int:
        return sum(each.lost_pods for each in self.machines.values())

    @property
    def serving(self) -> set[str]:
        """Names of the machines whose slurmd has the newest revision and takes jobs."""
        members = {name: self.member(each) for name, each in self.machines.items()}
        newest = self.pool.assignment
        return {
            name
            for name, each in members.items()
            if each.serves
            and each.revision == newest.revision
            and (self.machines[name].told == newest.conf or self.machines[name].static)
        }


def served(machines: int = 1, pool: Pool = POOL) -> tuple[World, Machine]:
    """Returns a world in which all Nodes take jobs, and the first machine of this world."""
    world = World(machines, pool)
    world.settle()
    return world, world.machines["n0000"]
