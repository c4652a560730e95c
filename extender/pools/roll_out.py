"""Decides the next actions for a pool's Nodes, with a pure function of the state that Slurm and
Kubernetes report.

The function keeps no state. All state is in the Nodes (assigned revision), in the Pods (running
revision) and in the reasons of Slurm's drains. So the next leader continues where the last leader
stopped. A slurmd Pod is replaced only after the node is drained and the node's jobs have ended."""

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
    """Assigns another revision to a Node. If `assignment` is None, removes the Node's assignment."""

    member: Member
    assignment: Assignment | None


@dataclass(frozen=True, slots=True)
class Drain:
    """Drains a node with a reason, or clears the pool's drain (TAKE_BACK)."""

    member: Member
    reason: str


@dataclass(frozen=True, slots=True)
class Delete:
    """Deletes a node in Slurm. At this time, the node has no slurmd Pod."""

    member: Member


Action = Assign | Drain | Delete


@dataclass(frozen=True, slots=True)
class PoolState:
    """State of a pool, for metrics and messages."""

    wanted: int = 0
    serving: int = 0
    updated: int = 0
    """Nodes with the pool's newest revision."""
    unavailable: int = 0
    busy: int = 0
    """Nodes with jobs, including placeholders."""
    busy_outdated: int = 0
    """Nodes with an old revision and native jobs."""
    reserved: int = 0
    """Nodes that may leave the pool, or register with a new configuration, only after the end of a
    reservation."""
    stopped: str = ""
    """The reason why the roll-out has stopped; "" if the roll-out continues."""
    kept: int = 0
    """Nodes that no longer match the pool, but stay in the pool, because too many Nodes would leave at
    once."""
    keeps: str = ""
    """The reason why Nodes are kept; "" without such Nodes."""


@dataclass(frozen=True, slots=True)
class Decision:
    actions: tuple[Action, ...] = ()
    state: PoolState = field(default_factory=PoolState)
    reserved: tuple[Member, ...] = ()
    """The Nodes that wait for the end of a reservation."""


def decide(pool: Pool, members: Sequence[Member], matching: frozenset[str]) -> Decision:
    """Returns the actions for `members`, the Nodes that are in a pool or match the pool. `matching` has
    the names of the matching Nodes."""
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
    """Returns True if slurmd is to serve now. A roll-out does not wait for Nodes that are not ready,
    powered down, cordoned or set DOWN."""
    return member.ready and not (member.asleep or member.cordoned or member.set_down)


def _serve(pool: Pool, awake: Sequence[Member], *, rolls_out: bool) -> Iterator[Action]:
    """Yields actions to keep Nodes serving, and to roll the newest revision out if `rolls_out`."""
    deleted = pool_reason(pool.name, PoolCause.DELETED)
    yield from (Drain(each, deleted) for each in awake if _is_being_deleted(each))
    yield from (Drain(each, each.cause) for each in awake if _to_resume(pool, each, rolls_out=rolls_out))
    yield from (action for each in awake for action in _note_service(each))
    yield from (action for each in awake for action in _go_back(pool, each))
    yield from _get_newest(pool, awake, rolls_out=rolls_out)


def wanted(pool: Pool, members: Iterable[Member], matching: frozenset[str]) -> frozenset[str]:
    """Returns the Nodes that are to be in a pool. If more Nodes match than `replicas`, keeps Nodes
    that are already in the pool: reserved Nodes first, then busy Nodes. A Node that is already
    leaving continues to leave."""
    fit = [each for each in members if each.node in matching]
    if pool.replicas is None or len(fit) <= pool.replicas:
        return frozenset(each.node for each in fit)

    def order(member: Member) -> tuple[bool, bool, bool, bool, str]:
        leaves = member.reason.startswith(pool_reason(pool.name, PoolCause.LEAVES))
        return leaves, not member.revision, not _stays(member), not member.busy, member.node

    return frozenset(each.node for each in sorted(fit, key=order)[: pool.replicas])


def _kept(pool: Pool, members: Iterable[Member], matching: frozenset[str]) -> frozenset[str]:
    """Returns the Nodes that do not match a pool, but stay in the pool. Nodes stay if too many Nodes
    would leave at once, because the file or the labels are probably wrong. With `replicas: 0`, no Node
    stays, because the pool is emptied on purpose."""
    there = [each.node for each in members if each.ours]
    leaving = frozenset(there) - matching
    return leaving if not pool.is_emptied and too_many(len(leaving), len(there)) else frozenset()


def _why_kept(pool: Pool, kept: int) -> str:
    if not kept:
        return ""
    if not pool.in_file:
        return (
            f"{kept} Nodes are in a pool that the file does not define: to empty the pool, define it"
            " with replicas: 0"
        )
    words = f"{kept} of its Nodes no longer match the pool, and all stay"
    return f"{words}: let at most a third leave at a time (replicas: 0 empties the whole pool)"


def _stays(member: Member) -> bool:
    """Returns True if a reservation keeps a Node in its pool. During maintenance, no job needs slurmd,
    so a running maintenance reservation does not keep the Node."""
    needed = member.reserved_later or (member.reserved and not member.in_maintenance)
    return needed and member.assigned is not None and member.leaves_something


def _waits(pool: Pool, member: Member, wanted: bool) -> bool:
    """Returns True if the next change of a Node waits for the end of a reservation."""
    if wanted:
        return _waits_for_deletion(pool, member)
    return member.reserved and member.assigned is not None


def _outdated(pool: Pool, member: Member) -> bool:
    return not _has(member, pool.assignment)


def _has(member: Member, assignment: Assignment) -> bool:
    return member.assigned is not None and member.assigned.same_for_all == assignment


def _failure(pool: Pool, member: Member) -> str:
    """Returns the failure of the newest revision on a Node, or the earlier failure that made the
    Node go back."""
    if member.revision == pool.assignment.revision:
        return member.failing
    return member.assigned.why if member.assigned is not None and _went_back(pool, member) else ""


def _went_back(pool: Pool, member: Member) -> bool:
    """Returns True if the newest revision has failed on a Node with jobs. On a Node without jobs, the
    newest revision may start again."""
    failed = member.assigned.failed if member.assigned is not None else ""
    return failed == pool.assignment.revision and member.allocated


def _stopped(pool: Pool, inside: Iterable[Member]) -> str:
    """Returns the reason why no more Nodes get the newest revision; "" without a reason."""
    failing = [each for each in inside if _failure(pool, each)]
    if len(failing) < pool.update.stop_after:
        return ""
    first = min(failing, key=lambda each: each.node)
    words = f"{len(failing)} slurmd Pods of {pool.assignment.revision} fail"
    return f"{words}; on {first.node}: {_failure(pool, first)}"[:_LONGEST_WORDS]


def _leave(pool: Pool, member: Member) -> Iterator[Action]:
    """Yields the next step of a leaving Node: drain the node, remove the Pod, delete the node that
    the Pod created."""
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
    """Yields actions for a Node that is powered down or cordoned. A powered-down Node needs no slurmd. A
    cordoned Node loses slurmd after the end of its jobs."""
    if member.asleep and member.pod is None and member.drained_by_pool and not member.cordoned:
        yield Drain(member, member.cause)  # with the pool's drain, Slurm would not power the node up
    if member.busy:
        return
    if not member.revision:
        if member.cordoned and not (member.held or member.down):  # a person has cleared the drain
            yield Drain(member, pool_reason(pool.name, PoolCause.CORDONED))
        return
    if member.set_down:
        # Keeps the node out of service after slurmd returns.
        yield Drain(member, member.reason or _SET_DOWN)
    elif member.asleep or member.held or member.down:
        yield from _stop(member)
    elif member.drained:
        yield Drain(member, pool_reason(pool.name, PoolCause.CORDONED))


def _stop(member: Member) -> Iterator[Action]:
    """Removes the slurmd Pod for now. The assignment keeps the digest of the configuration that
    slurmctld knows."""
    if member.assigned is not None:
        yield Assign(member, replace(member.assigned.same_for_all, revision="", before=_before(member)))


def _note_service(member: Member) -> Iterator[Action]:
    """Records that slurmd serves. After this, the Node does not go back to the earlier revision, and
    slurmd does not claim another boot. After a second boot, slurmctld would assume a crash, and end the
    node's jobs."""
    assigned = member.assigned
    if assigned is not None and member.serves and not member.goes_back:
        noted = replace(assigned, boots=False, before="")
        if noted != assigned:
            yield Assign(member, noted)


def _go_back(pool: Pool, member: Member) -> Iterator[Action]:
    """Yields actions that bring the earlier revision back, if a new slurmd fails while placeholders are
    on the node. The earlier slurmd returns in time, before the placeholders end."""
    if member.assigned is None or not member.goes_back:
        return
    if member.held:
        yield Assign(member, member.assigned.back(member.failing))
    else:
        yield Drain(member, pool_reason(pool.name, PoolCause.ROLL_OUT, member.revision))


def _get_newest(pool: Pool, awake: Sequence[Member], *, rolls_out: bool) -> Iterator[Action]:
    """Assigns the newest revision: first to Nodes without slurmd, then to Nodes with another revision.
    If the roll-out has stopped, no Node gets the newest revision. In this case, a Node without slurmd
    gets the most frequent revision of the serving Nodes."""
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
    """Restarts a slurmd that started before the boot that Slurm's power saving expects, because
    slurmctld rejects the registration of such a slurmd. No job is lost, because no job has started on
    the node yet."""
    if member.waited_for and member.revision and member.assigned and not member.assigned.boots:
        yield from _stop(member)


def _come_back(pool: Pool, member: Member, newest: Assignment) -> Iterator[Action]:
    """Assigns slurmd to a Node whose node Slurm already knows. slurmctld keeps the first configuration
    of a node. So a node with a changed configuration is first deleted in Slurm. The node is not deleted
    if Slurm would also lose a job, a reservation, or a person's decision to keep the node out of
    service."""
    old_conf = member.assigned.conf if member.assigned is not None else ""
    with_old_conf = replace(newest, conf=old_conf, before=_before(member))
    if member.waited_for:
        yield Assign(member, replace(newest, conf=old_conf or newest.conf, boots=True))
    elif old_conf == newest.conf or not member.can_be_forgotten or member.kept_out:
        yield Assign(member, with_old_conf)
    elif not member.reserved:
        yield Delete(member)
    elif not pool.update.in_maintenance or member.reserved_later:
        yield Assign(member, with_old_conf)


def _may_start(pool: Pool, awake: Sequence[Member]) -> int:
    """Returns how many more Nodes may get the newest revision. Until `stop_after` Nodes serve with the
    newest revision, at most `stop_after` Nodes get the revision."""
    current = [each for each in awake if each.revision == pool.assignment.revision]
    if sum(each.serves for each in current) >= pool.update.stop_after:
        return len(awake)
    next_ones = sum(_outdated(pool, each) and each.drained_by_pool for each in awake)
    on_their_way = next_ones + sum(not each.registered for each in current)
    on_their_way += sum(_went_back(pool, each) for each in awake)
    return max(0, pool.update.stop_after - on_their_way)


def _used_most(members: Iterable[Member]) -> Assignment | None:
    """Returns the most frequent assignment of the Nodes that serve."""
    serving = (each.assigned for each in members if each.assigned is not None and each.serves)
    tally = Counter(each.same_for_all for each in serving)
    return tally.most_common(1)[0][0] if tally else None


def _is_being_deleted(member: Member) -> bool:
    """Returns True if a node needs a drain because its slurmd Pod is being deleted. The Pod stays until
    its jobs have ended, and no more jobs may start."""
    leaving = member.pod is not None and member.pod.leaving
    return leaving and member.slurm is not None and not (member.held or member.waited_for)


def _to_resume(pool: Pool, member: Member, *, rolls_out: bool) -> bool:
    """Returns True if the pool's drain of a node has to end."""
    done = not (rolls_out and _outdated(pool, member) and _has_its_turn(pool, member))
    fit = member.registered and not member.away and not member.failing
    return done and fit and member.drained_by_pool


def _replace(pool: Pool, awake: Sequence[Member], start: int) -> Iterator[Action]:
    """Assigns the newest revision to at most `start` Nodes with another revision. Empty nodes are first,
    then nodes with placeholders only, then nodes whose jobs have to end. A failing template should fail
    on an empty node first, because placeholders end with NODE_FAIL if no slurmd answers for
    SlurmdTimeout."""
    ready = [each for each in awake if each.revision and not _waits_for_slurmd(pool, each)]
    outdated = [each for each in ready if not _has(each, _next(pool, each))]
    room = pool.update.most_unavailable(len(awake)) - sum(not each.serves for each in awake)
    for each in sorted(outdated, key=lambda each: (_has_to_wait(pool, each), each.allocated, each.node)):
        out = each.drained or each.down
        if (out and _has_to_wait(pool, each)) or _waits_for_deletion(pool, each):
            continue
        if not (each.down or _has_its_turn(pool, each)):
            continue
        counted = each.drained_by_pool  # already counted against the limits when the node was drained
        anyway = out or bool(each.failing)
        if not counted and not (start > 0 and (anyway or (each.serves and room > 0))):
            continue
        start -= not counted
        room -= not anyway
        if not (each.held or each.down):
            yield Drain(each, pool_reason(pool.name, PoolCause.ROLL_OUT, pool.assignment.revision))
        elif _must_be_deleted(pool, each):
            yield from _stop(each)
        else:
            yield Assign(each, replace(_next(pool, each), before=_before(each)))


def _waits_for_slurmd(pool: Pool, member: Member) -> bool:
    """Returns True if a roll-out must not change a Node's assignment now. On a Node with placeholders, a
    new slurmd has to register or fail first. Until then, only the earlier revision may replace the new
    slurmd, because several new revisions in a row would take too long."""
    assigned, pod = member.assigned, member.pod
    if assigned is None or member.registered or not member.allocated:
        return member.goes_back
    if assigned.failed:
        return not member.failing
    # While the node agent pulls the images of the new revision, the earlier slurmd still runs.
    runs_on = pod is not None and pod.revision == assigned.before and not pod.leaving
    may_change = runs_on or assigned.before == pool.assignment.revision
    return member.goes_back or (member.can_go_back and not may_change)


def _before(member: Member) -> str:
    """Returns the revision that served last on a Node with placeholders, "" for an empty node."""
    if member.assigned is None or not member.allocated:
        return ""
    return member.served_by or member.assigned.before or member.revision


def _next(pool: Pool, member: Member) -> Assignment:
    """Returns the assignment to the newest revision. While a person keeps the node out of service, the
    assignment has the configuration that slurmctld already has. Another configuration needs a new node
    in Slurm, and the new node would be in service."""
    if member.assigned is not None and member.kept_out:
        return replace(pool.assignment, conf=member.assigned.conf)
    return pool.assignment


def _must_be_deleted(pool: Pool, member: Member) -> bool:
    """Returns True if Slurm has to delete the node before the next assignment, because the configuration
    for slurmctld changes."""
    dynamic = member.slurm is not None and member.slurm.dynamic
    return dynamic and member.assigned is not None and member.assigned.conf != _next(pool, member).conf


def _has_to_wait(pool: Pool, member: Member) -> bool:
    """Returns True if jobs prevent the replacement of a Node's Pod."""
    return member.busy or (_must_be_deleted(pool, member) and member.allocated)


def _has_its_turn(pool: Pool, member: Member) -> bool:
    if _waits_for_deletion(pool, member) or _went_back(pool, member):
        return False
    return member.in_maintenance or not pool.update.in_maintenance


def _waits_for_deletion(pool: Pool, member: Member) -> bool:
    """Returns True if a Node keeps its assignment for now, because Slurm would lose a reservation
    together with the node."""
    waits = member.reserved_later if pool.update.in_maintenance else member.reserved
    return waits and _must_be_deleted(pool, member)
