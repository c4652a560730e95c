"""Removes the leftovers of an uninstalled extender: the gates of waiting Pods, and live jobs.

Nothing is removed while a replica leads. A leading replica would delete the Pods of the ended jobs, and
would request jobs for the Pods whose gate is gone.
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
    """Raised if a replica still renews the Lease. The user must uninstall the extender first."""


@dataclass(slots=True)
class Done:
    """The numbers of finished actions, and the problems of failed actions."""

    lifted: int = 0
    """Number of lifted gates."""
    ended: int = 0
    """Number of cancelled jobs."""
    problems: list[str] = field(default_factory=list)


async def no_leader(kubernetes: Kubernetes, namespace: str, duration_s: int, timeout_s: float) -> None:
    """Waits until no replica leads: until the Lease is missing, or has not changed for `duration_s`.
    Raises StillLeads if a replica still leads after `timeout_s`."""
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
    """Lifts the extender's gate from every waiting Pod."""
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
