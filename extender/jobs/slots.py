"""Slots of a job. A slot is the part of a job's grant that one Pod (member) of the workload gets.

If Slurm places several members on a node, no two members get the same core or device. The members of a
workload request the same amounts. The slots of a node are equal, and remaining cores stay unused. The
first slot of a node has the lowest numbers of cores and devices.

Slurm reports the resources of a job on each node, but not the number of tasks there. So for packed tasks
(`JobSpec.tasks`), this module computes how many members a node can have.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TypeVar

from extender.node_view.view import ClusterView
from extender.pod_request.pod import Pod
from slurm_client import gres
from slurm_client.model import Grant, Job, JobSpec
from wellknown import number_list
from wellknown.allocation import Allocation

_Value = TypeVar("_Value", str, int)
NodeOf = Callable[[str], str | None]
"""Takes the name of a Slurm node. Returns the name of its Kubernetes Node; None if there is no such
Node."""


def nodes_by(view: ClusterView, pods: Iterable[Pod] = ()) -> NodeOf:
    """Returns the function that finds the Node of a Slurm node in a view. If several Nodes stand for a
    Slurm node, the function prefers the Node of a bound Pod among `pods`."""
    bound = {pod.life.node for pod in pods if pod.life.node is not None}

    def node_of(slurm_node: str) -> str | None:
        with_pod = next((node for node in bound if view.names_it(node, slurm_node)), None)
        known = view.node_of(slurm_node)
        return with_pod or (None if known is None else known.name)

    return node_of


def in_topology(grant: Grant, view: ClusterView) -> Grant:
    """Returns a grant with the nodes in the order of the topology, so that ranks with close numbers have
    close nodes. Slurm sorts the nodes of a job by name. Nodes in one place stay in Slurm's order."""
    if not view.tiers or len(grant.nodes) < 2:
        return grant
    places = [view.place_of(name) for name in grant.nodes]
    order = sorted(range(len(places)), key=places.__getitem__)

    def sort(of: tuple[_Value, ...]) -> tuple[_Value, ...]:
        return tuple([of[number] for number in order]) if len(of) == len(order) else of

    texts = (sort(grant.nodes), sort(grant.gres), sort(grant.cores))
    return Grant(*texts, sort(grant.memory_mb), sort(grant.sockets), sort(grant.cpus))


def slots(
    grant: Grant, job_id: int, asked: JobSpec, members: int, node_of: NodeOf
) -> Iterator[Allocation]:
    """Yields the slots of a workload's job, in the order of the grant. `asked` is the request for the
    job of all `members`. There are fewer slots than `members` if a Slurm node has no Kubernetes Node, if
    the grant of a node cannot be divided, or if the grant lacks requested amounts."""
    for number, share in enumerate(_shares(grant, asked, members)):
        node = node_of(grant.nodes[number])
        if node is not None:
            yield from _divided(_whole(grant, number, job_id, node), share)


def whole_on_nodes(grant: Grant, job_id: int, node_of: NodeOf) -> Iterator[Allocation]:
    """Yields all resources of a job on each Node."""
    for number, name in enumerate(grant.nodes):
        node = node_of(name)
        if node is not None:
            yield _whole(grant, number, job_id, node)


def whole_on_node(pod: Pod, job: Job, view: ClusterView) -> Allocation | None:
    """Returns all resources of a job on a bound Pod's Node; None if the job is not there."""
    on_nodes = whole_on_nodes(job.grant, job.id, nodes_by(view, [pod]))
    return next((whole for whole in on_nodes if whole.node == pod.life.node), None)


def whole_on(slurm_node: str, grant: Grant, job_id: int, node: str) -> Allocation | None:
    """Returns all resources of a job on a Slurm node, as one slot of the Kubernetes Node `node`; None if
    the job is not there."""
    if slurm_node not in grant.nodes:
        return None
    return _whole(grant, grant.nodes.index(slurm_node), job_id, node)


def _whole(grant: Grant, number: int, job_id: int, node: str) -> Allocation:
    devices, cores, sockets = (
        of[number] if number < len(of) else "" for of in (grant.gres, grant.cores, grant.sockets)
    )
    memory_mb = grant.memory_mb[number] if number < len(grant.memory_mb) else 0
    name = "" if grant.nodes[number] == node else grant.nodes[number]
    return Allocation(job_id, node, devices, cores, memory_mb, sockets if cores else "", name)


def _shares(grant: Grant, asked: JobSpec, members: int) -> list[int]:
    """Returns the number of members on each node. Packed tasks fill the nodes in the order of the grant,
    because Slurm may have rounded the grant up (whole nodes), so that a node has room for more
    members."""
    if asked.tasks is None:
        return [max(1, members // asked.nodes)] * len(grant.nodes)
    shares, left = list[int](), members
    for number in range(len(grant.nodes)):
        shares.append(min(_room(grant, asked, number), left))
        left -= shares[-1]
    return shares


def _room(grant: Grant, asked: JobSpec, number: int) -> int:
    """Returns the number of members with the requested amounts for which the grant of a node is large
    enough. Each member has whole cores of its own."""
    if not len(grant.cores) == len(grant.cpus) == len(grant.nodes):
        return 0
    cores = len(number_list.expand(grant.cores[number]))
    cpus_per_core = grant.cpus[number] // max(1, cores)
    rooms = [cores // max(1, -(-asked.cpus // cpus_per_core)) if cpus_per_core else 0]
    memory_mb = grant.memory_mb[number] if number < len(grant.memory_mb) else 0
    if memory_mb and asked.memory_mb:  # 0: Slurm does not count memory, or grants all memory
        rooms.append(memory_mb // asked.memory_mb)
    devices = gres.counts(grant.gres[number] if number < len(grant.gres) else "")
    return min(*rooms, *(devices[name] // count for name, count in asked.gres), asked.tasks or 0)


def _divided(whole: Allocation, share: int) -> Iterator[Allocation]:
    """Divides the resources of a node into `share` equal slots, and yields the slots. Yields no slot if
    there are too few cores, or if the devices cannot be divided equally."""
    if share <= 1:
        yield from [whole] * share
        return
    cores = number_list.expand(whole.cores)
    devices = gres.divided(whole.gres, share)
    size = len(cores) // share
    for part in range(share if devices and size else 0):
        own = number_list.compress(cores[part * size : (part + 1) * size])
        memory_mb = whole.memory_mb // share
        yield replace(whole, gres=devices[part], cores=own, memory_mb=memory_mb)
