"""Compares a job's grant with the request, and with the slot of a bound Pod. A slot is the part of the
grant for one Pod: cores, devices and memory on a Node.

The extender writes the slot onto the Pod (`wellknown.allocation`), and the node agent lets the kernel
limit the Pod to the slot. If slurmctld has lost its state, or the start of a job, the job may get other
cores and devices of the same node. Other jobs may then get the Pod's cores and devices. A slot has an
effect only if the slot is written on the Pod and is for the Pod's Node. If Slurm's report lacks a fact,
the fact counts as unchanged.
"""

from collections import Counter
from dataclasses import replace

from extender.explain.cause import Cause, Kind
from extender.jobs.slots import whole_on_node
from extender.node_view.view import ClusterView
from extender.pod_request.pod import Pod
from slurm_client import gres
from slurm_client.model import Grant, Job, JobSpec
from wellknown.allocation import Allocation

_PREFIXES = ("gres/", "gres:")
_Devices = dict[str, tuple[int, ...]]
"""Slurm's numbers of devices, by the name of the GRES. For example, {"gpu": (0, 1)}."""


# Amounts


def covers(grant: Grant, asked: JobSpec) -> bool:
    """Returns True if an immediate grant shows the requested devices on each node. Also returns True if
    the grant shows the CPUs of packed tasks (`slots.slots` then counts the tasks on each node)."""
    if asked.tasks is not None:
        return len(grant.cpus) == len(grant.nodes)
    return all(_has(each, name) >= count for each in _on_each(grant) for name, count in asked.gres)


def cpus_on_each(job: Job, nodes: int) -> int | None:
    """Returns the CPUs of a job on each of its nodes; None if Slurm reports no CPUs."""
    return None if job.cpus_allocated is None else job.cpus_allocated // nodes


def requested_gres(job: Job) -> Counter[str]:
    """Returns the GRES that a job requests on each node, or for each packed task. If Slurm has already
    granted devices to the job, each number is at most the number of granted devices on each node, or for
    each task."""
    text = job.tres_per_node or job.tres_per_task
    elements = (element.strip().replace("=", ":") for element in text.split(","))
    names = ",".join(e[len(p) :] for e in elements for p in _PREFIXES if e.startswith(p))
    asked = gres.counts(names)
    if not job.gres:
        return asked
    given = _on_each(job.grant)
    if not job.tres_per_node:
        has = {name: sum(_has(each, name) for each in given) // (job.tasks or 1) for name in asked}
    else:
        has = {name: min(_has(each, name) for each in given) for name in asked}
    return Counter({name: min(number, has[name]) for name, number in asked.items()})


def _has(devices: Counter[str], name: str) -> int:
    """Returns the number of a GRES among a job's devices. Slurm does not report the type of shared
    GPUs."""
    bare = name.partition(":")[0]
    return devices[bare if bare in gres.SHARED else name]


def _on_each(grant: Grant) -> list[Counter[str]]:
    """Returns the numbers of devices on each node."""
    by_node = len(grant.gres) == len(grant.nodes) > 0
    return [gres.counts(each) for each in (grant.gres if by_node else [",".join(grant.gres)])]


# Changes under a bound Pod


def devices_taken(pod: Pod, job: Job, view: ClusterView) -> Cause | None:
    """Returns a cause that names the devices that a bound Pod uses, but that the Pod's running job does
    not have on the Node. Returns None if the job has all of the Pod's devices. A running container keeps
    its open devices, so the Pod may use devices of other jobs. Without a node agent, the result is None,
    because the kubelet chooses the devices."""
    node = view.nodes.get(pod.life.node or "")
    if node is None or not node.has_agent:
        return None
    runs_on, has = _in_force(pod), whole_on_node(pod, job, view)
    now = None if has is None else _devices(has.gres)
    if runs_on is None or now is None:
        return None
    taken = {
        name: numbers
        for name, numbers in (_devices(runs_on.gres) or {}).items()
        if _is_reported(job, now, name) and not set(numbers) <= set(now.get(name, ()))
    }
    if not taken:
        return None
    in_slurm = tuple([(name, now.get(name, ())) for name in taken])
    return Cause.of(Kind.OTHER_DEVICES, job=job.id, has=in_slurm, runs_on=tuple(taken.items()))


def changed_slot(pod: Pod, has: Allocation | None) -> Allocation | None:
    """Returns the slot to write onto a bound Pod after the slot of the Pod's job has changed. `has` is
    the current slot of the job on the Node. Returns None if the slot has not changed, or if no slot is
    on the Pod. The Pod keeps its devices, because the containers have opened the devices."""
    before = _in_force(pod)
    if has is None or before is None or has == before:
        return None
    devices = _devices(has.gres)
    now = replace(
        has,
        gres=has.gres if _has_all(devices, _devices(before.gres)) else before.gres,
        cores=has.cores or before.cores,
        memory_mb=has.memory_mb or before.memory_mb,
        sockets=has.sockets if has.cores else before.sockets,
    )
    same_devices = _devices(now.gres) == _devices(before.gres)
    same = same_devices and (now.cores, now.memory_mb) == (before.cores, before.memory_mb)
    return None if same else now


def _has_all(devices: _Devices | None, before: _Devices | None) -> bool:
    if not devices:
        return False
    return all(set(numbers) <= set(devices.get(name, ())) for name, numbers in (before or {}).items())


def _in_force(pod: Pod) -> Allocation | None:
    """Returns the slot that is written on a Pod, if the slot is for the Pod's Node; otherwise None."""
    stands = pod.scheduling.allocation
    if stands is None or stands.node != pod.life.node:
        return None
    return stands if stands.gres or stands.cores or stands.memory_mb else None


def _devices(text: str) -> _Devices | None:
    """Returns the devices in a text; None if the text is invalid. So an invalid text gives no Pod access
    to devices."""
    try:
        return gres.numbers(text)
    except ValueError:
        return None


def _is_reported(job: Job, now: _Devices, name: str) -> bool:
    """Returns True if Slurm's report shows which devices of this name the job has, or that the job has
    none. If the job requested such devices and the report has no devices at all, the report is not
    reliable."""
    if name in now:
        return bool(now[name])
    return bool(job.gres) or not requested_gres(job)[name]
