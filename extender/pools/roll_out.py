"""The next actions for a pool's Nodes: one pure function of what both systems report.

Nothing is remembered. The Nodes (assigned revision), the Pods (running revision) and the reasons of
Slurm's drains have all state: the next leader goes on where this one was killed. A slurmd Pod is
replaced only after its node was drained and the jobs there have ended."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from extender.node_sync.drains import PoolCause, pool_reason, too_many
from extender.pools.member import Member
from extender.pools.pool import Pool
from wellknown.slurmd_pod import Assignment

_LONGEST_WORDS = 300
_SET_DOWN = "set DOWN in Slurm"


@dataclass(frozen=True, slots=True)
class Assign:
    """Have a Node run another slurmd Pod than now, or none."""

    member: Member
    assignment: Assignment | None


@dataclass(frozen=True, slots=True)
class Drain:
    """Drain a node for a reason, or take the pool's drain back (TAKE_BACK)."""

    member: Member
    reason: str


@dataclass(frozen=True, slots=True)
class Delete:
    """Have Slurm forget a node whose Pod has left for good."""

    member: Member


Action = Assign | Drain | Delete


@dataclass(frozen=True, slots=True)
class PoolState:
    """How a pool is, for metrics and people."""

    wanted: int = 0
    serving: int = 0
    updated: int = 0
    """Assigned to the pool's newest revision."""
    unavailable: int = 0
    busy: int = 0
    """Nodes of which jobs have any part, placeholders included."""
    busy_outdated: int = 0
    """Nodes with an old revision on which native jobs run."""
    reserved: int = 0
    """Nodes that leave, or get what is to be told of them anew, only when a reservation is over."""
    stopped: str = ""
    """Why its roll-out has stopped; empty where it has not."""
    kept: int = 0
    """Nodes that do not match it any more and are kept: too many would leave at once."""
    keeps: str = ""
    """Why they are; empty where there are none."""


@dataclass(frozen=True, slots=True)
class Decision:
    actions: tuple[Action, ...] = ()
    state: PoolState = field(default_factory=PoolState)
    reserved: tuple[Member, ...] = ()
    """The Nodes that wait for the end of a reservation."""


def decide(pool: Pool, members: Sequence[Member], matching: frozenset[str]) -> Decision:
    """Returns what to do about the Nodes in a pool or matching it. `matching`: names of the latter."""
    members = [each for each in members if not each.somebody_elses]
    wanted_names = wanted(pool, members, matching)
    inside = [each for each in members if each.node in wanted_names or _stays(each)]
    outside = [each for each in members if each.node not in wanted_names and not _stays(each)]
    reserved = [each for each in members if _waits(pool, each, each.node in wanted_names)]
    stopped = _stopped(pool, inside)
    kept_names = _kept(pool, members, matching)
    kept = [each for each in outside if each.node in kept_names]
    leaving = [each for each in outside if each.node not in kept_names]
    at_rest = [each for each in (*inside, *kept) if each.asleep or each.cordoned]
    awake = [each for each in inside if _is_awake(each)]
    actions = [
        *(action for each in leaving for action in _leave(pool, each)),
        *(action for each in at_rest for action in _rest(pool, each)),
        *_serve(pool, awake, rolls_out=pool.in_file and not stopped),
        *_serve(pool, [each for each in kept if _is_awake(each)], rolls_out=False),
    ]
    state = PoolState(
        wanted=len(inside),
        serving=sum(each.serves for each in awake),
        updated=sum(not _outdated(pool, each) for each in inside),
        unavailable=sum(not each.serves for each in awake),
        busy=sum(each.allocated for each in awake),
        busy_outdated=sum(each.busy and _outdated(pool, each) for each in awake),
        reserved=len(reserved),
        stopped=stopped,
        kept=len(kept),
        keeps=_why_kept(pool, len(kept)),
    )
    return Decision(tuple(actions), state, tuple(reserved))


def _is_awake(member: Member) -> bool:
    """Whether its slurmd is to serve now. No roll-out waits for a Node that is off, or set DOWN."""
    return member.ready and not (member.asleep or member.cordoned or member.set_down)


def _serve(pool: Pool, awake: Sequence[Member], *, rolls_out: bool) -> Iterator[Action]:
    """Has Nodes serve, and get the newest revision where that is rolled out."""
    deleted = pool_reason(pool.name, PoolCause.DELETED)
    yield from (Drain(each, deleted) for each in awake if _is_being_deleted(each))
    yield from (Drain(each, each.cause) for each in awake if _to_resume(pool, each, rolls_out=rolls_out))
    yield from (action for each in awake for action in _note_service(each))
    yield from (action for each in awake for action in _go_back(pool, each))
    yield from _get_newest(pool, awake, rolls_out=rolls_out)


def wanted(pool: Pool, members: Iterable[Member], matching: frozenset[str]) -> frozenset[str]:
    """Returns the Nodes that are to be in a pool. Of too many those stay that are in it, first those
    that are reserved, or have jobs; one that is on its way out stays on its way."""
    fit = [each for each in members if each.node in matching]
    if pool.replicas is None or len(fit) <= pool.replicas:
        return frozenset(each.node for each in fit)

    def order(member: Member) -> tuple[bool, bool, bool, bool, str]:
        leaves = member.reason.startswith(pool_reason(pool.name, PoolCause.LEAVES))
        return leaves, not member.revision, not _stays(member), not member.busy, member.node

    return frozenset(each.node for each in sorted(fit, key=order)[: pool.replicas])


def _kept(pool: Pool, members: Iterable[Member], matching: frozenset[str]) -> frozenset[str]:
    """Returns the Nodes that do not match a pool and stay: if too many would leave at once, the file or
    the labels are probably wrong. `replicas: 0` is meant."""
    there = [each.node for each in members if each.ours]
    leaving = frozenset(there) - matching
    return leaving if not pool.is_emptied and too_many(len(leaving), len(there)) else frozenset()


def _why_kept(pool: Pool, kept: int) -> str:
    if not kept:
        return ""
    if not pool.in_file:
        return (
            f"{kept} Nodes have it, and the file does not: to empty it, have it there with replicas: 0"
        )
    words = f"{kept} of its Nodes do not match it any more, and none leaves"
    return f"{words}: have at most a third leave at a time (replicas: 0 empties the whole pool)"


def _stays(member: Member) -> bool:
    """Whether a reservation keeps a Node in its pool. During maintenance no job needs its slurmd."""
    needed = member.reserved_later or (member.reserved and not member.in_maintenance)
    return needed and member.assigned is not None and member.leaves_something


def _waits(pool: Pool, member: Member, wanted: bool) -> bool:
    """Whether what is to become of a Node waits for the end of a reservation."""
    if wanted:
        return _waits_to_be_told_anew(pool, member)
    return member.reserved and member.assigned is not None


def _outdated(pool: Pool, member: Member) -> bool:
    return not _has(member, pool.assignment)


def _has(member: Member, assignment: Assignment) -> bool:
    return member.assigned is not None and member.assigned.same_for_all == assignment


def _failure(pool: Pool, member: Member) -> str:
    """Returns why the newest revision fails on a Node, or failed there before the Node went back."""
    if member.revision == pool.assignment.revision:
        return member.failing
    return member.assigned.why if member.assigned is not None and _went_back(pool, member) else ""


def _went_back(pool: Pool, member: Member) -> bool:
    """Whether the newest revision has failed on a Node. It may be tried there again without jobs."""
    failed = member.assigned.failed if member.assigned is not None else ""
    return failed == pool.assignment.revision and member.allocated


def _stopped(pool: Pool, inside: Iterable[Member]) -> str:
    """Returns why no more Nodes get the newest revision."""
    failing = [each for each in inside if _failure(pool, each)]
    if len(failing) < pool.update.stop_after:
        return ""
    first = min(failing, key=lambda each: each.node)
    words = f"{len(failing)} slurmd Pods of {pool.assignment.revision} fail"
    return f"{words}; on {first.node}: {_failure(pool, first)}"[:_LONGEST_WORDS]


def _leave(pool: Pool, member: Member) -> Iterator[Action]:
    """A leaving Node is drained, then loses its Pod, then the node in Slurm that its Pod made."""
    if not member.ours:
        return
    if not member.leaves_something:
        if member.assigned is not None:
            yield Assign(member, None)
    elif member.slurm is not None and not member.held:
        yield Drain(member, pool_reason(pool.name, PoolCause.LEAVES))
    elif member.allocated:
        return
    elif member.revision:
        yield from _stop(member)
    elif member.pod is None and not member.reserved:
        yield Delete(member)


def _rest(pool: Pool, member: Member) -> Iterator[Action]:
    """A powered-down Node needs no slurmd. A cordoned Node loses slurmd after its jobs."""
    if member.asleep and member.pod is None and member.drained_by_pool and not member.cordoned:
        yield Drain(member, member.cause)  # else Slurm would not wake it
    if member.busy:
        return
    if not member.revision:
        if member.cordoned and not (member.held or member.down):  # a person has taken the drain back
            yield Drain(member, pool_reason(pool.name, PoolCause.CORDONED))
        return
    if member.set_down:
        # So that it stays out of service when slurmd is back.
        yield Drain(member, member.reason or _SET_DOWN)
    elif member.asleep or member.held or member.down:
        yield from _stop(member)
    elif member.drained:
        yield Drain(member, pool_reason(pool.name, PoolCause.CORDONED))


def _stop(member: Member) -> Iterator[Action]:
    """No slurmd for the time being; what slurmctld was told of the node is not forgotten."""
    if member.assigned is not None:
        yield Assign(member, replace(member.assigned.same_for_all, revision="", before=_before(member)))


def _note_service(member: Member) -> Iterator[Action]:
    """A slurmd that serves does not go back. It claims a boot once: a second one slurmctld takes for a
    crash, and ends the node's jobs."""
    assigned = member.assigned
    if assigned is not None and member.serves and not member.goes_back:
        noted = replace(assigned, boots=False, before="")
        if noted != assigned:
            yield Assign(member, noted)


def _go_back(pool: Pool, member: Member) -> Iterator[Action]:
    """A new slurmd fails while placeholders are there: the one before comes back, in time for them."""
    if member.assigned is None or not member.goes_back:
        return
    if member.held:
        yield Assign(member, member.assigned.back(member.failing))
    else:
        yield Drain(member, pool_reason(pool.name, PoolCause.ROLL_OUT, member.revision))


def _get_newest(pool: Pool, awake: Sequence[Member], *, rolls_out: bool) -> Iterator[Action]:
    """Nodes without slurmd get the newest revision, then those that have another. Where it is not rolled
    out, since it fails say, nobody gets it: a Node without slurmd gets what most others have."""
    without = [each for each in awake if not each.revision and each.has_agent and each.pod is None]
    yield from (action for each in awake for action in _boot(each))
    newest = pool.assignment if rolls_out else _used_most(awake)
    if newest is None:
        return
    start = _may_start(pool, awake) if rolls_out else len(awake)
    for each in sorted(without, key=lambda each: each.node):
        if each.slurm is not None:
            yield from _come_back(pool, each, newest)
        elif start > 0:
            start -= 1
            yield Assign(each, newest)
    if rolls_out:
        yield from _replace(pool, awake, start)


def _boot(member: Member) -> Iterator[Action]:
    """Slurm's power saving waits for a boot, and the slurmd that runs has not left meanwhile: slurmctld
    takes no registration of it. No job has begun there that could end with it."""
    if member.waited_for and member.revision and member.assigned and not member.assigned.boots:
        yield from _stop(member)


def _come_back(pool: Pool, member: Member, newest: Assignment) -> Iterator[Action]:
    """A Node whose node Slurm knows gets slurmd again. What slurmctld was told of a node once stays, so
    it forgets one of which something else is to be told, unless it would forget more than that."""
    told = member.assigned.conf if member.assigned is not None else ""
    as_told = replace(newest, conf=told, before=_before(member))
    if member.waited_for:
        yield Assign(member, replace(newest, conf=told or newest.conf, boots=True))
    elif told == newest.conf or not member.can_be_forgotten or member.kept_out:
        yield Assign(member, as_told)
    elif not member.reserved:
        yield Delete(member)
    elif not pool.update.in_maintenance or member.reserved_later:
        yield Assign(member, as_told)


def _may_start(pool: Pool, awake: Sequence[Member]) -> int:
    """Returns how many more Nodes may get the newest revision: `stop_after` until as many serve."""
    current = [each for each in awake if each.revision == pool.assignment.revision]
    if sum(each.serves for each in current) >= pool.update.stop_after:
        return len(awake)
    next_ones = sum(_outdated(pool, each) and each.drained_by_pool for each in awake)
    on_their_way = next_ones + sum(not each.registered for each in current)
    on_their_way += sum(_went_back(pool, each) for each in awake)
    return max(0, pool.update.stop_after - on_their_way)


def _used_most(members: Iterable[Member]) -> Assignment | None:
    """Returns the assignment of most of those that serve."""
    serving = (each.assigned for each in members if each.assigned is not None and each.serves)
    tally = Counter(each.same_for_all for each in serving)
    return tally.most_common(1)[0][0] if tally else None


def _is_being_deleted(member: Member) -> bool:
    """Whether its Pod is being deleted, which lasts until its jobs have ended: no more may come."""
    leaving = member.pod is not None and member.pod.leaving
    return leaving and member.slurm is not None and not (member.held or member.waited_for)


def _to_resume(pool: Pool, member: Member, *, rolls_out: bool) -> bool:
    """Whether the pool's drain of a node is over."""
    done = not (rolls_out and _outdated(pool, member) and _has_its_turn(pool, member))
    fit = member.registered and not member.away and not member.failing
    return done and fit and member.drained_by_pool


def _replace(pool: Pool, awake: Sequence[Member], start: int) -> Iterator[Action]:
    """Gives the newest revision to at most `start` others: first empty nodes, then nodes with
    placeholders alone, then nodes whose jobs have to end. A template that fails should fail on an empty
    node: placeholders end with NODE_FAIL if the slurmd of their node is away for SlurmdTimeout."""
    ready = [each for each in awake if each.revision and not _waits_for_slurmd(pool, each)]
    outdated = [each for each in ready if not _has(each, _next(pool, each))]
    room = pool.update.most_unavailable(len(awake)) - sum(not each.serves for each in awake)
    for each in sorted(outdated, key=lambda each: (_has_to_wait(pool, each), each.allocated, each.node)):
        out = each.drained or each.down
        if (out and _has_to_wait(pool, each)) or _waits_to_be_told_anew(pool, each):
            continue
        if not (each.down or _has_its_turn(pool, each)):
            continue
        counted = each.drained_by_pool  # when it was drained
        anyway = out or bool(each.failing)
        if not counted and not (start > 0 and (anyway or (each.serves and room > 0))):
            continue
        start -= not counted
        room -= not anyway
        if not (each.held or each.down):
            yield Drain(each, pool_reason(pool.name, PoolCause.ROLL_OUT, pool.assignment.revision))
        elif _is_told_anew(pool, each):
            yield from _stop(each)
        else:
            yield Assign(each, replace(_next(pool, each), before=_before(each)))


def _waits_for_slurmd(pool: Pool, member: Member) -> bool:
    """Returns True if a Node with placeholders keeps its assignment, or goes back: a new slurmd has to
    register or to fail first, and only the revision before may replace it. One new revision after
    another would take too long."""
    assigned, pod = member.assigned, member.pod
    if assigned is None or member.registered or not member.allocated:
        return member.goes_back
    if assigned.failed:
        return not member.failing
    # While the agent pulls images, the slurmd before runs.
    runs_on = pod is not None and pod.revision == assigned.before and not pod.leaving
    may_change = runs_on or assigned.before == pool.assignment.revision
    return member.goes_back or (member.can_go_back and not may_change)


def _before(member: Member) -> str:
    """Returns the revision that served last on a Node with placeholders, "" for an empty node."""
    if member.assigned is None or not member.allocated:
        return ""
    return member.served_by or member.assigned.before or member.revision


def _next(pool: Pool, member: Member) -> Assignment:
    """Returns what a Node is to run by the newest revision. As long as a person has its node out of
    service slurmctld is not told anew of it, since a node that comes anew is in service."""
    if member.assigned is not None and member.kept_out:
        return replace(pool.assignment, conf=member.assigned.conf)
    return pool.assignment


def _is_told_anew(pool: Pool, member: Member) -> bool:
    """Whether slurmctld has to forget a node first, since something else is to be told of it."""
    dynamic = member.slurm is not None and member.slurm.dynamic
    return dynamic and member.assigned is not None and member.assigned.conf != _next(pool, member).conf


def _has_to_wait(pool: Pool, member: Member) -> bool:
    """Whether jobs are there that keep its Pod from being replaced."""
    return member.busy or (_is_told_anew(pool, member) and member.allocated)


def _has_its_turn(pool: Pool, member: Member) -> bool:
    if _waits_to_be_told_anew(pool, member) or _went_back(pool, member):
        return False
    return member.in_maintenance or not pool.update.in_maintenance


def _waits_to_be_told_anew(pool: Pool, member: Member) -> bool:
    """Whether a Node keeps what it has, since Slurm would forget more than its node (a reservation)."""
    waits = member.reserved_later if pool.update.in_maintenance else member.reserved
    return waits and _is_told_anew(pool, member)
