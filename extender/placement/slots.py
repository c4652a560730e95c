"""Which Pod of a workload gets which of the nodes that Slurm has granted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from extender.cluster.view import ClusterView
from extender.placement.member import Member
from slurm_client.model import Grant
from wellknown.allocation import Allocation


def slot_on(slurm_node: str, job_id: int, grant: Grant, view: ClusterView) -> Allocation | None:
    """Returns what was granted on one of a job's nodes; None where no Node stands for it."""
    node, number = view.node_of(slurm_node), grant.nodes.index(slurm_node)
    if node is None:
        return None
    gres = grant.gres[number] if len(grant.gres) == len(grant.nodes) else ",".join(grant.gres)
    return Allocation(job_id, node.name, gres)


def with_slots(members: Sequence[Member], slots: Iterable[Allocation]) -> tuple[Member, ...]:
    """Returns the members with a slot each: whoever has one of these Nodes keeps it, since that may be
    written onto the Pod already; the others get what is left, in their order."""
    free = {slot.node: slot for slot in slots}
    kept = {each.pod.uid: free.pop(node) for each in members if (node := _node(each)) in free}
    rest = iter(free.values())
    return tuple(each._replace(slot=kept.get(each.pod.uid) or next(rest)) for each in members)


def _node(member: Member) -> str:
    return member.pod.node or (member.slot.node if member.slot else "")
