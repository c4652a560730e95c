"""`node-agent status` shows the grant of each Pod of the Node, and the limits in force for Pods and
native jobs. The command reads the grants from kube-apiserver and the limits from the kernel, and needs
no running agent."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Final, NamedTuple

import orjson
from rich.console import Console
from rich.table import Table

from kubernetes_client.protocol import Manifest
from kubernetes_client.rest import KubernetesRest
from kubernetes_client.watch import ResourceWatch
from node_agent.enforcement import constraints, native_jobs
from node_agent.enforcement.constraints import Counted
from node_agent.enforcement.decision import Entry
from node_agent.enforcement.limits import limits_of
from node_agent.enforcement.native_jobs import Scope, missing
from node_agent.kernel.device_guard import known_in
from node_agent.kubelet.checkpoint import Checkpoint
from node_agent.kubelet.pod_resources import devices_of_pods
from node_agent.machine import names, slurmd_gres
from node_agent.machine.cpus import Cpus
from node_agent.machine.devices import Number
from node_agent.machine.hang_safe_call import HangSafeCall, Unanswered
from node_agent.machine.kubelet_names import units_of
from node_agent.machine.numbered import Machine
from node_agent.machine.slurmd_gres import SHARING
from node_agent.pods.cgroups import CPUS, CPUS_IN_FORCE, MEMORY, PodCgroup, PodCgroups, limits_now
from node_agent.pods.claims import Claim, claim_of, sockets_of
from node_agent.runtime.admission import differences
from node_agent.settings import Settings
from wellknown import number_list

_MIB: Final = 1 << 20
_FIELDS: Final = ("cpus", "memory", "devices")
_NONE: Final = "-"
_UNKNOWN: Final = "not known"
_PATIENCE_S: Final = 10.0
"""Time for a driver's reply."""


class Row(NamedTuple):
    """Texts about a Pod or a job. In each pair, the first text is the grant, and the second text is the
    value in force."""

    who: str
    cpus: tuple[str, str]
    memory: tuple[str, str]
    devices: tuple[str, str]
    problem: str = ""


class Kernel(NamedTuple):
    """State of the kernel and of the machine."""

    cgroups: Mapping[str, PodCgroup]
    """Cgroups by the uid of the Pod."""
    entries: Iterable[Entry]
    machine: Machine | None
    """None if slurmd's list is unreadable."""
    cpus: Cpus | None
    """None if the map of cores is unknown."""

    def devices(self, cgroup: int) -> str:
        if self.machine is None:
            return _UNKNOWN
        own = {entry.number: entry.in_part for entry in self.entries if entry.cgroup == cgroup}
        found: dict[str, list[int]] = {}
        for name, parts in self.machine.by_name.items():
            for number, part in enumerate(parts):
                if part.own and part.own <= own.keys():
                    in_part = any(own[each] for each in part.own)
                    found.setdefault(_part_of(name) if in_part else name, []).append(number)
        return _devices(found)


def main(settings: Settings, *, as_json: bool) -> None:
    """Prints the rows on standard output. Prints on standard error which data could not be read. Raises
    OSError, KubernetesError, NoCredentials."""
    console = Console(stderr=True)
    manifests = asyncio.run(_pods(settings))
    claims = {claim.uid: claim for claim in (claim_of(each, settings.node) for each in manifests)}
    pods = PodCgroups(settings.cgroups, settings.pods_cgroups)
    cgroups = {each.uid: each for each in pods.pods()}
    known = known_in(settings.bpf)
    entries = [Entry(cgroup, Number(*device), in_part) for cgroup, device, in_part in known]
    machine, cpus = None, None
    try:
        machine = Machine(slurmd_gres.parse(settings.gres.read_text()))
    except (OSError, ValueError) as error:
        console.print(f"slurmd's list of devices cannot be read: {error}")
    try:
        cpus = Cpus.read().counted_by({*filter(None, map(sockets_of, manifests))})
    except (OSError, ValueError) as error:
        console.print(f"the machine's map of cores is not known: {error}")
    kernel = Kernel(cgroups, entries, machine, cpus)
    others: dict[str, str] = {}
    try:
        others = asyncio.run(other_devices(settings, claims.values(), machine)) if machine else {}
    except (OSError, Unanswered) as error:
        console.print(f"the kubelet's count of devices cannot be compared: {error}")
    rows = [_with(pod(claim, kernel), others) for claim in claims.values() if claim.of_job]
    counted = native_jobs.counted(claims, machine.guarded if machine else ())
    rows += jobs(native_jobs.scopes(pods, claims), counted)
    if as_json:
        Console(highlight=False, soft_wrap=True, markup=False).print(document(rows))
    else:
        Console().print(_table(rows))


async def _pods(settings: Settings) -> Sequence[Manifest]:
    async with aclosing(await KubernetesRest.connect(settings.kubeconfig)) as kubernetes:
        pods = ResourceWatch(kubernetes, "pods", f"spec.nodeName={settings.node}")
        return await pods.list()


async def other_devices(settings: Settings, claims: Iterable[Claim], machine: Machine) -> dict[str, str]:
    """Compares the kubelet's count of devices with Slurm's grants. Returns the Pods with a difference,
    and a text about the difference. Raises OSError, Unanswered."""
    if settings.device_plugins is None or settings.pod_resources is None:
        return {}
    answers = await HangSafeCall(names.ask_drivers, "a driver", _PATIENCE_S).result()
    called, _ = names.read(machine.devices, settings.cdi, answers)
    checkpoint, found = Checkpoint(settings.device_plugins), dict[str, str]()
    for resource, gres in settings.resources.items():
        listed = await devices_of_pods(settings.pod_resources, resource)
        units = units_of(machine, called, resource, gres, checkpoint.of_pods(resource))
        found |= differences(listed, claims, units)
    return found


def _with(row: Row, others: Mapping[str, str]) -> Row:
    problems = (row.problem, others.get(row.who, ""))
    return row._replace(problem="; ".join(filter(None, problems)))


def pod(claim: Claim, kernel: Kernel) -> Row:
    """Returns the row of a Pod."""
    limits = limits_of(claim, kernel.cpus)
    problem = claim.problem or limits.problem
    try:
        if kernel.machine:
            kernel.machine.parts(claim.devices)
    except ValueError as error:
        problem = str(error)
    cgroup = kernel.cgroups.get(claim.uid)
    now = _in_force(cgroup.place) if cgroup else {}
    granted = number_list.compress(limits.cpus) or (_UNKNOWN if claim.cores else _NONE)
    return Row(
        claim.pod,
        (granted, now.get(CPUS_IN_FORCE) or _NONE),
        (_mebibytes(str(limits.memory or "")), _mebibytes(now.get(MEMORY, ""))),
        (_granted(claim), kernel.devices(cgroup.number) if cgroup else _NONE),
        problem or ("" if now else "it has no cgroup"),
    )


def jobs(scopes: Iterable[Scope], what: Counted) -> Iterator[Row]:
    """Yields the rows of native jobs. The rows have no grants, because only Slurm knows the grants of
    native jobs."""
    for job in sorted(job for scope in scopes for job in scope.jobs()):
        now = _in_force(job)
        cpus, memory = now.get(CPUS_IN_FORCE) or _NONE, _mebibytes(now.get(MEMORY, ""))
        problem = constraints.words({job.name: missing(job, what)})
        yield Row(job.name, (_NONE, cpus), (_NONE, memory), (_NONE, _NONE), problem)


def _in_force(place: Path) -> dict[str, str]:
    """Returns the texts of a cgroup's files, or {} for a removed cgroup."""
    try:
        now, effective = limits_now(place), place / CPUS_IN_FORCE
        shown = effective.read_text().strip() if effective.exists() else now.get(CPUS, "")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    return now | {CPUS_IN_FORCE: shown}


def _mebibytes(text: str) -> str:
    return f"{int(text) // _MIB} MiB" if text.isdecimal() else text or _NONE


def _granted(claim: Claim) -> str:
    """Returns the devices of a Pod's job as text, for example "gpu 0-1" or "part of gpu 2 (shard:2)"."""
    whole = {name: of for name, of in claim.devices.items() if name not in claim.parts}
    in_parts = sorted({number for name in claim.parts for number in claim.devices[name]})
    words = _devices({**whole, _part_of(SHARING): in_parts})
    counts = ", ".join(f"{name}:{count}" for name, count in claim.counts_of_parts.items())
    return f"{words} ({counts})" if in_parts else words


def _part_of(name: str) -> str:
    return f"part of {name}"


def _devices(numbers: Mapping[str, Iterable[int]]) -> str:
    texts = (f"{name} {number_list.compress(of)}" for name, of in sorted(numbers.items()) if of)
    return ", ".join(texts) or _NONE


def document(rows: Iterable[Row]) -> str:
    """Returns the rows as JSON, for programs."""
    entries = [
        {
            "who": row.who,
            **{
                name: {"granted": granted, "inForce": in_force}
                for name, (granted, in_force) in zip(_FIELDS, row[1:4], strict=True)
            },
            "problem": row.problem or None,
        }
        for row in rows
    ]
    return orjson.dumps({"rows": entries}, option=orjson.OPT_INDENT_2).decode()


def _table(rows: Iterable[Row]) -> Table:
    table = Table("", "CPUs granted", "in force", "memory", "in force", "devices", "in force", "problem")
    for row in rows:
        table.add_row(row.who, *row.cpus, *row.memory, *row.devices, row.problem)
    return table
