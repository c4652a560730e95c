"""What a Pod of this Node has of Slurm, as it stands on the Pod: only the extender can write it there
(wellknown.allocation)."""

from collections.abc import Mapping
from typing import NamedTuple

from kubernetes_client.protocol import Manifest
from slurm_client import gres
from wellknown.allocation import Allocation
from wellknown.names import GRANTED, JOB_ID

_ENDED = ("Succeeded", "Failed")


class Claim(NamedTuple):
    """A Pod of this Node, and the devices of its job by Slurm's numbers."""

    uid: str
    pod: str
    """Its namespace and name."""
    devices: Mapping[str, tuple[int, ...]] = {}
    """By the name of the GRES."""
    problem: str = ""
    """Why it is not known what it has."""


def claim_of(pod: Manifest, node: str) -> Claim:
    """Returns what a Pod of this Node has. One that has ended has nothing."""
    metadata = pod["metadata"]
    none = Claim(metadata["uid"], f"{metadata['namespace']}/{metadata['name']}")
    annotations = metadata.get("annotations") or {}
    if (pod.get("status") or {}).get("phase") in _ENDED or not annotations.keys() & {JOB_ID, GRANTED}:
        return none
    allocation = Allocation.parse(annotations) if GRANTED in annotations else None
    if allocation is None:
        return none._replace(problem="what Slurm granted it cannot be read")
    if allocation.node != node:
        return none._replace(problem=f"what Slurm granted it is on Node {allocation.node}")
    try:
        return none._replace(devices=gres.numbers(allocation.gres))
    except ValueError as error:
        return none._replace(problem=str(error))
