"""Amounts of a grant, and changes of the slot under a bound Pod.

The granted slot is on the Pod (`wellknown.allocation`), and the node agent has the kernel limit the Pod
to the slot. A slurmctld without its state, or without the start of a job, may give the job other cores
and devices of the same node, and give the Pod's cores and devices to other jobs. A slot that is not on a
Pod, or is of another Node, limits nothing. A fact that is missing in Slurm's report is no change.
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
"""Slurm's numbers, by the name of the GRES: {"gpu": (0, 1)}."""


# Amounts


def covers(grant: Grant, asked: JobSpec) -> bool:
    """Returns True if an immediate grant has the requested devices on each node."""
    return all(_has(each, name) >= count for each in _on_each(grant) for name, count in asked.gres)


def cpus_on_each(job: Job, nodes: int) -> int | None:
    """Returns the CPUs of a job on each of its nodes; None if Slurm reports no CPUs."""
    return None if job.cpus_allocated is None else job.cpus_allocated // nodes


def requested_gres(job: Job) -> Counter[str]:
    """Returns the GRES that a job requests on each node; if the job has devices, at most these."""
    elements = (element.strip().replace("=", ":") for element in job.tres_per_node.split(","))
    names = ",".join(e[len(p) :] for e in elements for p in _PREFIXES if e.startswith(p))
    asked = gres.counts(names)
    if not job.gres:
        return asked
    given = _on_each(job.grant)
    return Counter({name: min(n, *(_has(each, name) for each in given)) for name, n in asked.items()})


def _has(devices: Counter[str], name: str) -> int:
    """Returns the number of a GRES among a job's devices. Slurm reports no type of shared GPUs."""
    bare = name.partition(":")[0]
    return devices[bare if bare in gres.SHARED else name]


def _on_each(grant: Grant) -> list[Counter[str]]:
    """Returns the numbers of devices on each node."""
    by_node = len(grant.gres) == len(grant.nodes) > 0
    return [gres.counts(each) for each in (grant.gres if by_node else [",".join(grant.gres)])]


# Changes under a bound Pod


def devices_taken(pod: Pod, job: Job, view: ClusterView) -> Cause | None:
    """Returns the devices of a bound Pod that its running job does not have on the Node; None
    without such devices. A running container keeps its open devices. Without a node agent, the
    kubelet chooses the devices, whatever is on the Pod."""
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
        if _is_told(job, now, name) and not set(numbers) <= set(now.get(name, ()))
    }
    if not taken:
        return None
    in_slurm = tuple([(name, now.get(name, ())) for name in taken])
    return Cause.of(Kind.OTHER_DEVICES, job=job.id, has=in_slurm, runs_on=tuple(taken.items()))


def changed_slot(pod: Pod, has: Allocation | None) -> Allocation | None:
    """Returns the slot to write onto a bound Pod whose job has `has` on the Pod's Node; None if
    nothing has changed, or nothing is on the Pod. The devices on the Pod remain: the containers
    have opened them."""
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
    """Returns the slot on a Pod, of the Node where the Pod is; None without such a slot."""
    stands = pod.scheduling.allocation
    if stands is None or stands.node != pod.life.node:
        return None
    return stands if stands.gres or stands.cores or stands.memory_mb else None


def _devices(text: str) -> _Devices | None:
    """Returns the devices in a text; None if the text is invalid: no Pod gets access to such
    devices."""
    try:
        return gres.numbers(text)
    except ValueError:
        return None


def _is_told(job: Job, now: _Devices, name: str) -> bool:
    """Returns True if Slurm reports a job's devices of a name, or reports none. The report of no devices
    at all is not believed for a job with requested devices."""
    if name in now:
        return bool(now[name])
    return bool(job.gres) or not requested_gres(job)[name]
