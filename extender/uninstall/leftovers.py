"""What an uninstall does with what the extender has left: Pods that wait at its gate, and its live jobs.

Nothing is done while a replica leads: it would end the Pods whose jobs end here, and ask for jobs for
the Pods whose gate is lifted here.
"""

import asyncio
from dataclasses import dataclass, field

from extender.jobs.claim import key_of
from extender.node_view.read_jobs import read_all
from extender.record.config import PlacementConfig
from kubernetes_client.errors import KubernetesError
from kubernetes_client.protocol import Kubernetes, Manifest
from slurm_client.errors import SlurmError
from slurm_client.model import Job
from slurm_client.protocol import Slurm
from wellknown.names import GATE, LEASE


class StillLeads(Exception):
    """A replica renews the Lease: uninstall the extender first."""


@dataclass(slots=True)
class Done:
    """What was done, and why the rest was not."""

    lifted: int = 0
    """Pods whose gate was lifted."""
    ended: int = 0
    """Jobs that were cancelled."""
    problems: list[str] = field(default_factory=list)


async def nobody_leads(
    kubernetes: Kubernetes, namespace: str, duration_s: int, timeout_s: float
) -> None:
    """Returns once the Lease has not changed for as long as it lasts. Raises StillLeads."""
    clock = asyncio.get_running_loop().time
    ends, before = clock() + timeout_s, await kubernetes.read_lease(namespace, LEASE)
    while before is not None:
        await asyncio.sleep(duration_s)
        now = await kubernetes.read_lease(namespace, LEASE)
        if now is None or _version(now) == _version(before):
            return
        if clock() > ends:
            raise StillLeads(f"a replica renews the Lease {namespace}/{LEASE}")
        before = now


async def lift_gates(kubernetes: Kubernetes, scheduler_name: str, done: Done) -> None:
    """Lifts the extender's gate of every Pod that waits at it."""
    async for page in kubernetes.pages("pods", f"spec.schedulerName={scheduler_name}"):
        for manifest in page.get("items") or ():
            if not _is_gated(manifest):
                continue
            metadata = manifest["metadata"]
            gates = [{"name": GATE, "$patch": "delete"}]
            patch = {"metadata": {"uid": metadata["uid"]}, "spec": {"schedulingGates": gates}}
            try:
                await kubernetes.patch_pod(metadata["namespace"], metadata["name"], patch)
                done.lifted += 1
            except KubernetesError as error:
                done.problems.append(f"Pod {metadata['namespace']}/{metadata['name']}: {error}")


async def end_jobs(slurm: Slurm, rules: PlacementConfig, done: Done) -> None:
    """Cancels every live job with a key of this Kubernetes cluster."""
    states = await slurm.all_states()
    live = [job_id for job_id, state in states.items() if not state.ended]
    for job in await read_all((one for one in live if one in rules.ids), slurm):
        if not _is_ours(job, rules):
            continue
        try:
            await slurm.cancel(job.id, job.name)
            done.ended += 1
        except SlurmError as error:
            done.problems.append(f"job {job.id}: {error}")


def _is_ours(job: Job, rules: PlacementConfig) -> bool:
    key = key_of(job)
    return key is not None and key.cluster == rules.cluster


def _is_gated(manifest: Manifest) -> bool:
    return any(gate["name"] == GATE for gate in manifest["spec"].get("schedulingGates") or ())


def _version(manifest: Manifest) -> str:
    return str(manifest["metadata"].get("resourceVersion"))
