"""Claims of this Node's Pods to resources of Slurm, from the annotations of the Pods. Only the extender
can write the annotations (wellknown.allocation)."""

from collections.abc import Mapping
from decimal import Decimal
from typing import NamedTuple

from kubernetes_client.protocol import Manifest
from slurm_client import gres
from wellknown import number_list
from wellknown.allocation import Allocation
from wellknown.names import ADOPTED, GRANTED, JOB_ID
from wellknown.resources import effective_requests, mebibytes

_ENDED = ("Succeeded", "Failed")


class Claim(NamedTuple):
    """A Pod of this Node, and the share of its job in the Node, in Slurm's numbers."""

    uid: str
    pod: str
    """Namespace and name of the Pod."""
    devices: Mapping[str, tuple[int, ...]] = {}
    """Numbers of devices by the name of the GRES; parts (shard, mps) have the number of their GPU."""
    cores: tuple[int, ...] = ()
    """Numbers of cores, in ascending order."""
    memory_mb: int = 0
    """Memory of the job in MiB; 0 if Slurm does not count memory."""
    requested_mb: int = 0
    """Memory request of the Pod in MiB, for a job without memory."""
    parts: Mapping[str, int] = {}
    """Number of parts of GPUs by the name of the GRES."""
    problem: str = ""
    """Reason for an unknown claim."""
    of_job: bool = False
    leaves: bool = False
    """True if the Pod is being deleted, or has ended."""
    adopted: bool = False
    """True for an adopted Pod. The allocation of an adopted Pod is not annotated on the Pod."""
    slurmd: bool = False
    """True for the Node's slurmd Pod, which has the resources beside all Pods of jobs."""


def claim_of(manifest: Manifest, node: str) -> Claim:
    """Returns the claim of a Pod from kube-apiserver. An ended Pod has no resources."""
    metadata = manifest["metadata"]
    who, annotations = f"{metadata['namespace']}/{metadata['name']}", metadata.get("annotations") or {}
    claim = claim_by(metadata["uid"], who, annotations, node)
    if (manifest.get("status") or {}).get("phase") in _ENDED:
        return Claim(claim.uid, who, of_job=claim.of_job, leaves=True)
    claim = claim._replace(leaves="deletionTimestamp" in metadata)
    if not claim.of_job or claim.problem or claim.memory_mb:
        return claim
    requests = effective_requests(manifest.get("spec") or {})
    return claim._replace(requested_mb=mebibytes(requests.get("memory", Decimal(0))))


def claim_by(uid: str, pod: str, annotations: Mapping[str, str], node: str) -> Claim:
    """Returns the claim by annotations. Parameter `pod` is the namespace and name."""
    if not annotations.keys() & {JOB_ID, GRANTED}:
        return Claim(uid, pod, adopted=ADOPTED in annotations)
    none = Claim(uid, pod, of_job=True)
    allocation = Allocation.parse(annotations) if GRANTED in annotations else None
    if allocation is None:
        return none._replace(problem="what Slurm granted it cannot be read")
    if allocation.node != node:
        return none._replace(problem=f"what Slurm granted it is on Node {allocation.node}")
    try:
        devices, cores = gres.numbers(allocation.gres), number_list.expand(allocation.cores)
    except ValueError as error:
        return none._replace(problem=str(error))
    counts = gres.counts(allocation.gres)
    parts = {name: counts[name] for name in sorted(devices.keys() & gres.SHARED)}
    return none._replace(devices=devices, parts=parts, cores=cores, memory_mb=allocation.memory_mb)
