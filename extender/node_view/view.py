"""The read model of the nodes in Slurm and Kubernetes. A placement chooses among the Nodes in this
model.

`node_mapping` decides which Node represents a Slurm node. Slurm nodes without a Node run only native
jobs, so every placeholder excludes these nodes."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import or_
from typing import NamedTuple, Self, TypeVar

from extender.explain.cause import Cause, Kind
from extender.node_view.closings import cause_of, closed_nodes
from extender.node_view.node_index import Nodes
from extender.pod_request.constraints.node_constraints import Node, NodeConstraints
from extender.pod_request.limits import MOST_NAMES
from slurm_client import hostlist
from slurm_client.model import JobSpec, Partition
from wellknown.natural_order import natural_key
from wellknown.node_mapping import NodeNames

_MOST_ANSWERS = 2_000  # an answer may take some 30 kB, and each Pod may have another question
_MOST_LISTS = 100  # lists of partitions' nodes: each list has the names of all the nodes

_Question = TypeVar("_Question", bound=Hashable)
_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class Exclusion:
    """The Slurm nodes that a job must not use."""

    nodes: tuple[str, ...] = ()
    """The names, compressed into a single hostlist expression. For equal nodes, the expressions are
    equal. Empty without nodes."""
    leaves_none: bool = False
    """True if no node of the partition remains, or none of the job's required nodes."""


class Wish(NamedTuple):
    """All constraints of a Pod on Nodes at one moment."""

    constraints: NodeConstraints
    partition: str
    excluded: tuple[str, ...] = ()
    """The nodes excluded by the Pod's author, in the form of a job's request."""
    required: tuple[str, ...] = ()
    """The nodes required by the Pod's author. The job gets one of these nodes."""
    avoid: frozenset[str] = frozenset()
    """Nodes recently rejected by kube-scheduler for this Pod."""
    apart: int = 0
    """The Nodes that the Pod cannot use because of other Pods there, as a set of `Nodes`."""
    feasible_nodes: tuple[str, ...] | None = None
    """The only Nodes that the Pod can use, as names or hostlist expressions of names. None means all
    Nodes."""
    rejecting: frozenset[str] = frozenset()
    """Nodes whose kubelets reject Pods."""


class Domains(NamedTuple):
    """A question about the topology domains that count for a Pod's topology spread constraint."""

    key: str
    having: tuple[str, ...]
    """A Node counts only if the Node has all these labels."""
    constraints: NodeConstraints
    honors_affinity: bool
    honors_taints: bool


class _Answers(dict[_Question, _Answer]):
    """A cache of limited size. The answers are about one version of the read model."""

    def __init__(self, most: int = _MOST_ANSWERS) -> None:
        super().__init__()
        self._most = most
        self.made = 0

    def to(self, question: _Question, work_out: Callable[[_Question], _Answer]) -> _Answer:
        """Returns the answer to a question. The first call with a question computes the answer."""
        if question not in self:
            if len(self) >= self._most:
                self.clear()
            self[question] = work_out(question)
            self.made += 1
        return self[question]


@dataclass(slots=True)
class _Cached:
    """Answers about one version of the read model, computed at the first use."""

    excluded: _Answers[Wish, Exclusion] = field(default_factory=_Answers)
    explained: _Answers[Wish, Cause] = field(default_factory=_Answers)
    left: _Answers[Wish, int | None] = field(default_factory=_Answers)
    listed: _Answers[tuple[str, ...], tuple[str, ...]] = field(
        default_factory=lambda: _Answers(_MOST_LISTS)
    )
    graceful: _Answers[tuple[str | None, str | None], bool] = field(default_factory=_Answers)
    preempting: _Answers[str, bool] = field(default_factory=_Answers)
    domains: _Answers[Domains, dict[str, int]] = field(default_factory=_Answers)


@dataclass(frozen=True, slots=True)
class ClusterView:
    """One version of the read model, with the Nodes by their names in Kubernetes, and the partitions by
    name."""

    nodes: Mapping[str, Node] = field(default_factory=Nodes)
    partitions: Mapping[str, Partition] = field(default_factory=dict)
    preemption: bool = True
    """True if this Slurm may preempt jobs. Also True until the opposite is known."""
    qos_preemption: bool = False
    """True if Slurm preempts by QOS, independently of the partitions' tiers."""
    graceful_qos: frozenset[str] = frozenset()
    """QOS with a GraceTime, from the extender's settings."""
    max_job_count: int = 10_000
    """Slurm's MaxJobCount. The default here is Slurm's own default."""
    cluster: str = ""
    """Identity of the Kubernetes cluster, for the key of each job; "" until known."""
    tiers: tuple[str, ...] = ()
    """Labels of Nodes that name the tiers of the topology, from the widest tier to the narrowest."""

    _default_partition: str = field(default="", init=False, repr=False, compare=False)
    _cached: _Cached = field(default_factory=_Cached, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Shares the index of Nodes among all versions of the model."""
        object.__setattr__(self, "nodes", self._indexed)
        default = next((each.name for each in self.partitions.values() if each.default), "")
        object.__setattr__(self, "_default_partition", default)

    @property
    def _indexed(self) -> Nodes:
        return self.nodes if isinstance(self.nodes, Nodes) else Nodes(self.nodes)

    def with_node(self, name: str, node: Node | None) -> Self:
        """Returns the next version after a Node was added, changed or deleted. `node` is None for a
        deleted Node."""
        return replace(self, nodes=self._indexed.with_node(name, node))

    def node_of(self, slurm_name: str) -> Node | None:
        """Returns the Node that represents a Slurm node."""
        return self.nodes.get(self.names.standing_for(slurm_name) or "")

    def place_of(self, slurm_name: str) -> tuple[tuple[bool, str], ...]:
        """Returns the key that sorts Slurm nodes by the tiers of the topology. Nodes with the same
        values of the tiers' labels have the same key. A Node without a label comes last."""
        node = self.node_of(slurm_name)
        labels = {} if node is None else node.labels
        return tuple((not labels.get(tier), natural_key(labels.get(tier, ""))) for tier in self.tiers)

    def naming(self, slurm_name: str) -> tuple[Node, ...]:
        """Returns all Nodes that name a Slurm node. To find out whether a Slurm node is free, a caller
        must check all these Nodes."""
        return tuple(self.nodes[name] for name in self.names.naming(slurm_name))

    def names_it(self, node: str | None, slurm_name: str) -> bool:
        """Returns True if a Node names a Slurm node. If so, the job of a Pod on the Node is on this
        Slurm node."""
        found = self.nodes.get(node or "")
        return found is not None and found.slurm_name == slurm_name

    @property
    def names(self) -> NodeNames:
        return self._indexed.names

    def partition_name(self, asked: str | None) -> str:
        """Returns the partition of a job: the requested partition, otherwise Slurm's default."""
        return asked or self._default_partition

    def shares_cores(self, asked: str | None) -> bool:
        """Returns True if Slurm gives cores of a partition, or of any listed partition, to several
        jobs (slurm.conf(5) OverSubscribe)."""
        names = self.partition_name(asked).split(",")
        known = (self.partitions[name] for name in names if name in self.partitions)
        return any(each.oversubscribe.partition(":")[0] in {"YES", "FORCE"} for each in known)

    def may_preempt(self, partition: str) -> bool:
        """Returns True if a job of this partition could preempt another job, and also if the partition
        is unknown. Such a job gets no fast path, because the fast path requests an immediate allocation.
        Even if Slurm rejects such a request, Slurm may already have preempted jobs for the request."""
        if not self.preemption:
            return False
        if partition not in self.partitions or self.qos_preemption:
            return True
        return self._cached.preempting.to(partition, self._has_lower)

    def _has_lower(self, partition: str) -> bool:
        own = self.partitions[partition]
        nodes = frozenset(own.nodes)
        lower = (p for p in self.partitions.values() if p.priority_tier < own.priority_tier)
        return any(not nodes.isdisjoint(p.nodes) for p in lower)

    @property
    def gives_grace(self) -> bool:
        """True if any job of this Slurm may get grace time at a preemption."""
        graceful = (p.grace_time_s for p in self.partitions.values())
        return self.preemption and (bool(self.graceful_qos) or any(graceful))

    def has_grace(self, job: JobSpec) -> bool:
        """Returns True if the partition or the QOS of a job (or the user's QOS) may give grace time."""
        return self._cached.graceful.to((job.partition, job.qos), self._is_graceful)

    def _is_graceful(self, kind: tuple[str | None, str | None]) -> bool:
        partition, qos = kind
        partitions = self.partition_name(partition).split(",")
        by_partition = any(p.grace_time_s for n, p in self.partitions.items() if n in partitions)
        named = self.graceful_qos if qos is None else set(qos.split(","))
        by_qos = not self.graceful_qos.isdisjoint(named)
        return self.preemption and (by_partition or by_qos)

    def exclusion(self, wish: Wish) -> Exclusion:
        """Returns the nodes that a Pod's job must not use: nodes of the partition that the Pod cannot
        use, and nodes excluded by the Pod's author. The result is computed once for equal Pods, in some
        milliseconds for 5,000 Nodes."""
        return self._cached.excluded.to(wish, self._work_out)

    def why_none(self, wish: Wish) -> Cause:
        """Returns a cause with the number of a partition's Nodes closed to a Pod, for each reason."""
        return self._cached.explained.to(wish, self._explain)

    def named(self, names: Iterable[str]) -> int:
        """Returns the set of the Nodes with these names."""
        return self._indexed.named(names)

    def sharing(self, key: str, names: Iterable[str]) -> int:
        """Returns the set of the Nodes in the topology domains of these Nodes."""
        return self._indexed.sharing(key, names)

    def domains(self, asked: Domains) -> Mapping[str, int]:
        """Returns the topology domains that count, each with the set of its Nodes."""
        return self._cached.domains.to(asked, self._domains)

    def _domains(self, asked: Domains) -> dict[str, int]:
        nodes, by = self._indexed, {"affinity": asked.honors_affinity, "taints": asked.honors_taints}
        counted = nodes.counted(asked.constraints, **by) & nodes.having(asked.having)
        return nodes.domains(asked.key, counted)

    def leaves_any_of(self, nodes: Iterable[str], wish: Wish) -> bool:
        """Returns True if the exclusion leaves any of these Nodes, or if the partition is not fully
        known. The result is not cached."""
        left = self._cached.left.to(wish, self._nodes_left)
        return left is None or bool(left & self._indexed.named(nodes))

    @property
    def evaluated(self) -> int:
        """Number of exclusions computed so far."""
        return self._cached.excluded.made

    def _work_out(self, wish: Wish) -> Exclusion:
        nodes, listed, usable = self._indexed, self.slurm_nodes(wish.partition), self._usable(wish)
        closed = {name for name in listed if not nodes.standing_for(name) & usable}
        closed.update(hostlist.names(wish.excluded, MOST_NAMES))
        wanted = hostlist.names(wish.required, MOST_NAMES) or listed
        return Exclusion(excluding(closed), bool(listed) and closed.issuperset(wanted))

    def _explain(self, wish: Wish) -> Cause:
        """Counts each Node once, for the first reason, as kube-scheduler does."""
        listed = self.slurm_nodes(wish.partition)
        left = self._standing_for(listed)
        total, counted = left.bit_count(), Counter[Cause]()
        for cause, closed in self._closings(wish, listed):
            counted[cause] += (left & closed).bit_count()
            left &= ~closed
        return closed_nodes(total, counted)

    def _closings(self, wish: Wish, listed: Iterable[str]) -> Iterator[tuple[Cause, int]]:
        nodes = self._indexed
        required = hostlist.names(wish.required, MOST_NAMES) or listed
        yield Cause.of(Kind.NOT_REQUIRED), ~self._standing_for(required)
        excluded = hostlist.names(wish.excluded, MOST_NAMES)
        yield Cause.of(Kind.EXCLUDED_BY_POD), self._standing_for(excluded)
        for closing, closed in nodes.closed_to(wish.constraints):
            yield cause_of(closing), closed
        yield Cause.of(Kind.BESIDE_PODS), wish.apart
        yield Cause.of(Kind.EXCLUDED), nodes.named(wish.avoid)
        yield Cause.of(Kind.REJECTING), nodes.named(wish.rejecting)
        if wish.feasible_nodes is not None:
            found = nodes.named(hostlist.names(wish.feasible_nodes))
            yield Cause.of(Kind.NOT_FOUND), ~found

    def _standing_for(self, slurm_nodes: Iterable[str]) -> int:
        return reduce(or_, map(self._indexed.standing_for, slurm_nodes), 0)

    def _nodes_left(self, wish: Wish) -> int | None:
        """Returns the set of a Pod's remaining Nodes. Returns None if the partition is not fully
        known."""
        listed = self.slurm_nodes(wish.partition)
        wanted = set(hostlist.names(wish.required, MOST_NAMES) or listed)
        wanted.difference_update(hostlist.names(wish.excluded, MOST_NAMES))
        if not listed or not wanted.issubset(listed):
            return None
        return self._standing_for(wanted) & self._usable(wish)

    def _usable(self, wish: Wish) -> int:
        nodes = self._indexed
        avoided = nodes.named(wish.avoid | wish.rejecting) | wish.apart
        usable = nodes.open_to(wish.constraints) & ~avoided
        if wish.feasible_nodes is None:
            return usable
        return usable & nodes.named(hostlist.names(wish.feasible_nodes))

    def slurm_nodes(self, partition: str) -> tuple[str, ...]:
        """Returns the nodes of a partition, or of a list of partitions ("a,b", as in sbatch)."""
        known = self.partitions.keys() & partition.split(",")
        return self._cached.listed.to(tuple(sorted(known)), self._nodes_of)

    def _nodes_of(self, partitions: tuple[str, ...]) -> tuple[str, ...]:
        listed = (self.partitions[name].nodes for name in partitions)
        return tuple(dict.fromkeys(node for nodes in listed for node in nodes))


def excluding(names: Iterable[str]) -> tuple[str, ...]:
    """Returns nodes in the form of `Exclusion.nodes`."""
    expression = hostlist.compress(names)
    return (expression,) if expression else ()
