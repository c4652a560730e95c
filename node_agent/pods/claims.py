"""What a Pod of this Node has of Slurm, as it stands on the Pod: only the extender can write it there
(wellknown.allocation)."""

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
    """A Pod of this Node, and what its job has here by Slurm's numbers."""

    uid: str
    pod: str
    """Its namespace and name."""
    devices: Mapping[str, tuple[int, ...]] = {}
    """By the name of the GRES; parts of a GPU (shard, mps) by the number of the GPU."""
    cores: tuple[int, ...] = ()
    """In their order."""
    memory_mb: int = 0
    """In MiB; 0 if Slurm does not count memory."""
    requested_mb: int = 0
    """What the Pod itself requests, in MiB, if its job has no memory of its own."""
    parts: Mapping[str, int] = {}
    """How many parts of GPUs, by the name of their GRES."""
    problem: str = ""
    """Why it is not known what it has."""
    of_job: bool = False
    leaves: bool = False
    """Whether it is to be gone, or has ended."""
    adopted: bool = False
    """Whether another scheduler placed it, and a job runs for it: what it has does not stand on it."""
    slurmd: bool = False
    """Whether it is the Node's slurmd Pod, which has all that no Pod of a job has."""


def claim_of(manifest: Manifest, node: str) -> Claim:
    """Returns what a Pod of this Node has, as kube-apiserver has it. One that has ended has nothing."""
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
    """Returns what a Pod of this Node has by its annotations; `pod` is its namespace and name."""
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
