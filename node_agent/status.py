"""`node-agent status`: what each Pod of the Node was granted, what the kernel has in force for it, and
for the native jobs beside it. It reads both itself, and needs no agent that runs."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from rich.console import Console
from rich.table import Table

from kubernetes_client.rest import KubernetesRest
from kubernetes_client.watch import ResourceWatch
from node_agent.cgroups import PodCgroups, limits_now
from node_agent.claims import Claim, claim_of
from node_agent.decision import Entry, PodCgroup
from node_agent.kernel.device_guard import DeviceGuard
from node_agent.limits import CPUS, MEMORY, limits_of
from node_agent.machine import slurmd_gres
from node_agent.machine.cpus import Cpus
from node_agent.machine.numbered import Machine, Number
from node_agent.settings import Settings
from wellknown import number_list

_MIB: Final = 1 << 20
_EFFECTIVE: Final = "cpuset.cpus.effective"
_NONE: Final = "-"


class Row(NamedTuple):
    """Of a Pod or a job: words for people, of each what was granted and what is in force."""

    who: str
    cpus: tuple[str, str]
    memory: tuple[str, str]
    devices: tuple[str, str]
    problem: str = ""


class Kernel(NamedTuple):
    """What is in force."""

    cgroups: Mapping[str, PodCgroup]
    """By the Pod's uid."""
    entries: Iterable[Entry]
    machine: Machine
    cpus: Cpus

    def devices(self, cgroup: int) -> str:
        own = {number for at, number in self.entries if at == cgroup}
        return _devices(
            {
                name: tuple(n for n, part in enumerate(parts) if part.own and part.own <= own)
                for name, parts in self.machine.by_name.items()
            }
        )


def main(settings: Settings) -> None:
    """Prints it. Raises OSError, ValueError, KubernetesError, NoCredentials."""
    claims = asyncio.run(_claims(settings))
    cgroups = {each.uid: each for each in PodCgroups(settings.cgroups, settings.pods_cgroups).pods()}
    known = DeviceGuard(settings.bpf).known() if settings.bpf.exists() else set[Entry]()
    entries = [(cgroup, Number(*device)) for cgroup, device in known]
    machine = Machine(slurmd_gres.parse(settings.gres.read_text()))
    kernel = Kernel(cgroups, entries, machine, Cpus.read())
    rows = [pod(claim, kernel) for claim in claims if claim.of_job]
    Console().print(_table([*rows, *jobs(settings.cgroups)]))


async def _claims(settings: Settings) -> list[Claim]:
    kubernetes = await KubernetesRest.connect(settings.kubeconfig)
    try:
        pods = ResourceWatch(kubernetes, "pods", f"spec.nodeName={settings.node}")
        return [claim_of(manifest, settings.node) for manifest in await pods.list()]
    finally:
        await kubernetes.aclose()


def pod(claim: Claim, kernel: Kernel) -> Row:
    """Returns what stands of a Pod."""
    problem, cpus = claim.problem, ""
    try:
        cpus = number_list.compress(limits_of(claim, kernel.cpus).cpus)
        kernel.machine.parts(claim.devices)
    except ValueError as error:
        problem = str(error)
    cgroup = kernel.cgroups.get(claim.uid)
    now = _in_force(cgroup.place) if cgroup else {}
    return Row(
        claim.pod,
        (cpus or _NONE, now.get(_EFFECTIVE) or _NONE),
        (_mebibytes(str(claim.memory_mb * _MIB or "")), _mebibytes(now.get(MEMORY, ""))),
        (_devices(claim.devices), kernel.devices(cgroup.number) if cgroup else _NONE),
        problem or ("" if cgroup else "it has no cgroup"),
    )


def jobs(root: Path) -> Iterator[Row]:
    """Yields what stands of native jobs: what Slurm granted them is Slurm's to say."""
    steps = root.glob("**/*slurmstepd.scope/*/step_*")
    for job in sorted({step.parent for step in steps}):
        now = _in_force(job)
        cpus, memory = now.get(_EFFECTIVE) or _NONE, _mebibytes(now.get(MEMORY, ""))
        yield Row(job.name, (_NONE, cpus), (_NONE, memory), (_NONE, _NONE))


def _in_force(place: Path) -> dict[str, str]:
    effective = place / _EFFECTIVE
    now = limits_now(place)
    return now | {_EFFECTIVE: effective.read_text().strip() if effective.exists() else now.get(CPUS, "")}


def _mebibytes(text: str) -> str:
    return f"{int(text) // _MIB} MiB" if text.isdecimal() else text or _NONE


def _devices(numbers: Mapping[str, Iterable[int]]) -> str:
    told = (f"{name} {number_list.compress(of)}" for name, of in sorted(numbers.items()) if of)
    return ", ".join(told) or _NONE


def _table(rows: Iterable[Row]) -> Table:
    table = Table("", "CPUs granted", "in force", "memory", "in force", "devices", "in force", "problem")
    for row in rows:
        table.add_row(row.who, *row.cpus, *row.memory, *row.devices, row.problem)
    return table
