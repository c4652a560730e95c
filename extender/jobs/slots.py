"""Slots of a job. A slot is the part of a job's grant that one Pod (member) of the workload gets.

If Slurm places several members on a node, no two members get the same core or device. The members of a
workload request the same amounts, and get equal slots; remaining cores stay unused. The first slot of a
node has the lowest numbers of cores and devices.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from extender.node_view.view import ClusterView
from extender.pod_request.pod import Pod
from slurm_client import gres
from slurm_client.model import Grant, Job
from wellknown import number_list
from wellknown.allocation import Allocation

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


def slots(grant: Grant, job_id: int, members: int, node_of: NodeOf) -> Iterator[Allocation]:
    """Yields the slots of a job, node by node. Yields fewer slots than `members` if a Slurm node has no
    Kubernetes Node, or if the grant of a node cannot be divided."""
    for number, (name, share) in enumerate(zip(grant.nodes, _shares(grant, members), strict=True)):
        node = node_of(name)
        if node is not None:
            yield from _divided(_whole(grant, number, job_id, node), share)


def whole_on_node(pod: Pod, job: Job, view: ClusterView) -> Allocation | None:
    """Returns all resources of a job on a bound Pod's Node; None if the job is not there."""
    on_nodes = slots(job.grant, job.id, 1, nodes_by(view, [pod]))
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


def _shares(grant: Grant, members: int) -> list[int]:
    """Returns the number of members on each node, in proportion to the cores. If the job has a node for
    each member, each node gets one member, even if a node is larger. The number of cores does not matter
    then, because a job may have whole nodes."""
    nodes = len(grant.nodes)
    cores = [len(number_list.expand(each)) for each in grant.cores]
    if nodes >= members or len(cores) != nodes or not all(cores):
        return [1] * nodes
    return [max(1, each * members // sum(cores)) for each in cores]


def _divided(whole: Allocation, share: int) -> Iterator[Allocation]:
    """Divides the resources of a node into `share` equal slots, and yields the slots. Yields no slot if
    there are too few cores, or if the devices cannot be divided equally."""
    if share == 1:
        yield whole
        return
    cores = number_list.expand(whole.cores)
    devices = gres.divided(whole.gres, share)
    size = len(cores) // share
    for part in range(share if devices and size else 0):
        own = number_list.compress(cores[part * size : (part + 1) * size])
        memory_mb = whole.memory_mb // share
        yield replace(whole, gres=devices[part], cores=own, memory_mb=memory_mb)
