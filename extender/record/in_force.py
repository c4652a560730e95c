"""Whether a bound Pod has no more in force than its job has on its Node.

What Slurm granted stands on the Pod (`wellknown.allocation`), and the node agent has the kernel hold the
Pod to that. A slurmctld that has lost its state, or forgotten that it started the job, may give the job
other cores and devices of the same node, and to other jobs those that the Pod has. What does not stand
on a Pod, or stands there of another Node, is in force nowhere. What Slurm does not tell is no change.
"""

from dataclasses import replace

from extender.cluster.view import ClusterView
from extender.record.fit import gres_of
from extender.record.member import slot_of
from extender.request.pod import Pod
from slurm_client import gres
from slurm_client.model import Job
from wellknown import number_list
from wellknown.allocation import Allocation

_Devices = dict[str, tuple[int, ...]]
"""Slurm's numbers, by the name of the GRES: {"gpu": (0, 1)}."""


def devices_taken(pod: Pod, job: Job, view: ClusterView) -> str | None:
    """Returns in words which devices a bound Pod runs on that its job, which runs, does not have there;
    None: there are none. A container that runs keeps the devices that it has opened. Without a node
    agent there it has those that the kubelet chose, whatever stands on it."""
    node = view.nodes.get(pod.node or "")
    if node is None or not node.has_agent:
        return None
    runs_on, has = _in_force(pod), slot_of(pod, job, view)
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
    in_slurm = _listed({name: now.get(name, ()) for name in taken})
    return f"Slurm job {job.id} has {in_slurm} now, and the Pod runs on {_listed(taken)}"


def granted_now(pod: Pod, has: Allocation | None) -> Allocation | None:
    """Returns what is to stand on a bound Pod whose job has this there; None where it stands there
    already, and where nothing does: an extender of an older version wrote nothing. Devices that stand
    there stay: where a node agent is, the Pod has them, and else they say what it was bound with."""
    before = _in_force(pod)
    if has is None or before is None or has == before:
        return None
    devices = _devices(has.gres)
    now = replace(
        has,
        gres=has.gres if _has_all(devices, _devices(before.gres)) else before.gres,
        cores=has.cores or before.cores,
        memory_mb=has.memory_mb or before.memory_mb,
    )
    same_devices = _devices(now.gres) == _devices(before.gres)
    same = same_devices and (now.cores, now.memory_mb) == (before.cores, before.memory_mb)
    return None if same else now


def _has_all(devices: _Devices | None, before: _Devices | None) -> bool:
    if not devices:
        return False
    return all(set(numbers) <= set(devices.get(name, ())) for name, numbers in (before or {}).items())


def _in_force(pod: Pod) -> Allocation | None:
    """What stands on a Pod of the Node where it is; None: nothing."""
    stands = pod.allocation
    if stands is None or stands.node != pod.node:
        return None
    return stands if stands.gres or stands.cores or stands.memory_mb else None


def _devices(text: str) -> _Devices | None:
    """None where that cannot be read: nobody is let in to such devices."""
    try:
        return gres.numbers(text)
    except ValueError:
        return None


def _is_told(job: Job, now: _Devices, name: str) -> bool:
    """Tells whether Slurm says which devices of a name a job has, or that it has none: that it asks for
    some, and has none at all, is not to be believed, and a number of them says not which."""
    if name in now:
        return bool(now[name])
    return bool(job.gres) or not gres_of(job)[name]


def _listed(devices: _Devices) -> str:
    return " and ".join(
        f"{_called(name)} {number_list.compress(numbers)}" if numbers else f"no {name}"
        for name, numbers in devices.items()
    )


def _called(name: str) -> str:
    return f"{name} of gpu" if name in gres.SHARED else name
