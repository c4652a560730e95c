"""The claims of this Node's Pods: the resources that Slurm granted, from the annotations of the Pods.
Only the extender can write the annotations (wellknown.allocation)."""

from collections.abc import Mapping
from decimal import Decimal
from enum import Enum, auto
from typing import NamedTuple

from kubernetes_client.protocol import Manifest
from slurm_client import gres
from wellknown import number_list
from wellknown.allocation import Allocation
from wellknown.job_key import whole_number
from wellknown.names import ADOPTED, GRANTED, JOB_ID
from wellknown.resources import effective_requests, mebibytes

_ENDED = ("Succeeded", "Failed")


class Stage(Enum):
    """The stage of a Pod's life."""

    STAYS = auto()
    LEAVES = auto()  # the Pod is being deleted
    ENDED = auto()  # Succeeded or Failed


class Claim(NamedTuple):
    """A Pod of this Node, and the resources of the Pod's job on the Node, in Slurm's numbers."""

    uid: str
    pod: str
    """Namespace and name of the Pod."""
    devices: Mapping[str, tuple[int, ...]] = {}
    """Numbers of devices by the name of the GRES. Parts of a GPU (shard, mps) have the number of their
    GPU."""
    cores: tuple[int, ...] = ()
    """Numbers of cores, in ascending order."""
    memory_mb: int = 0
    """Memory of the job in MiB; 0 if Slurm does not count memory."""
    requested_mb: int = 0
    """Memory request of the Pod in MiB. The field is set only if Slurm granted no memory to the job."""
    parts: Mapping[str, Mapping[int, int]] = {}
    """Number of parts of each GPU, by the name of the parts' GRES and by the number of the GPU."""
    problem: str = ""
    """Reason why the claim is unknown, or ""."""
    job: int | None = None
    """Id of the Pod's job, or 0 if the id is unknown. None for a Pod without a job."""
    stage: Stage = Stage.STAYS
    adopted: bool = False
    """True for an adopted Pod: another scheduler placed the Pod, and the extender runs a job for the
    Pod. The annotations of an adopted Pod do not have the job's resources."""
    slurmd: bool = False
    """True for the Node's slurmd Pod. This Pod gets the resources that no Pod of a job has."""

    @property
    def of_job(self) -> bool:
        """Returns True if the extender placed the Pod by a job."""
        return self.job is not None and not self.adopted

    @property
    def leaves(self) -> bool:
        """Returns True if the Pod is being deleted, or has ended."""
        return self.stage is not Stage.STAYS

    @property
    def counts_of_parts(self) -> dict[str, int]:
        """Returns the number of parts of GPUs, by the name of the parts' GRES."""
        return {name: sum(split.values()) for name, split in self.parts.items()}


def claim_of(manifest: Manifest, node: str) -> Claim:
    """Returns the claim of a Pod, from the Pod's manifest in kube-apiserver. An ended Pod has no
    resources."""
    metadata = manifest["metadata"]
    who, annotations = f"{metadata['namespace']}/{metadata['name']}", metadata.get("annotations") or {}
    claim = claim_by(metadata["uid"], who, annotations, node)
    if (manifest.get("status") or {}).get("phase") in _ENDED:
        return Claim(claim.uid, who, job=claim.job, stage=Stage.ENDED, adopted=claim.adopted)
    if "deletionTimestamp" in metadata:
        claim = claim._replace(stage=Stage.LEAVES)
    if not claim.of_job or claim.problem or claim.memory_mb:
        return claim
    requests = effective_requests(manifest.get("spec") or {})
    return claim._replace(requested_mb=mebibytes(requests.get("memory", Decimal(0))))


def claim_by(uid: str, pod: str, annotations: Mapping[str, str], node: str) -> Claim:
    """Returns the claim that a Pod's annotations give. Parameter `pod` is the namespace and name of the
    Pod."""
    if not annotations.keys() & {JOB_ID, GRANTED}:
        adopted = ADOPTED in annotations
        return Claim(uid, pod, job=_job(annotations, ADOPTED) if adopted else None, adopted=adopted)
    none = Claim(uid, pod, job=_job(annotations, JOB_ID))
    allocation = Allocation.parse(annotations) if GRANTED in annotations else None
    if allocation is None:
        return none._replace(problem="what Slurm granted it cannot be read")
    if allocation.node != node:
        return none._replace(problem=f"what Slurm granted it is on Node {allocation.node}")
    try:
        devices, cores = gres.numbers(allocation.gres), number_list.expand(allocation.cores)
    except ValueError as error:
        return none._replace(problem=str(error))
    parts = gres.parts_by_gpu(allocation.gres)
    return none._replace(devices=devices, parts=parts, cores=cores, memory_mb=allocation.memory_mb)


def sockets_of(manifest: Manifest) -> str:
    """Returns the sockets of the node, as in `Allocation.sockets`, by which Slurm numbered the Pod's
    cores. Returns "" for a Pod without cores, and for a Pod that has ended."""
    if (manifest.get("status") or {}).get("phase") in _ENDED:
        return ""
    allocation = Allocation.parse(manifest["metadata"].get("annotations") or {})
    return allocation.sockets if allocation and allocation.cores else ""


def _job(annotations: Mapping[str, str], name: str) -> int:
    return whole_number(annotations.get(name, "")) or 0
