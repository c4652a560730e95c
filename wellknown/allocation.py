"""The allocation that Slurm granted to a Pod, as annotations. The extender writes the annotations, and
the node agent reads the annotations."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import orjson

from wellknown import number_list
from wellknown.job_key import whole_number
from wellknown.names import GRANTED, JOB_ID, NODE, RANK

_LONGEST_NAME = 253  # the limit of names in Kubernetes
_LONGEST_GRANTED = 65_536
_SOCKETS = re.compile(r"[1-9]\d{0,4}x[1-9]\d{0,4}", re.ASCII)
_VERSION = 1
"""Version of the text under GRANTED. A node agent ignores other versions."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """One job, the Kubernetes Node of the job, and the job's resources on the Node."""

    job_id: int
    node: str
    gres: str = ""
    """GRES with the numbers of devices, for example "gpu:h100:2(IDX:0-1)". Empty without devices."""
    cores: str = ""
    """Slurm's numbers of cores, for example "0-3,8". Slurm counts the cores of a node socket by socket.
    Only the node agent knows the machine's own numbers of the CPUs. Empty if Slurm reports no cores."""
    memory_mb: int = 0
    """Memory in MiB; 0 if Slurm does not count memory."""
    sockets: str = field(default="", compare=False)
    """Number of sockets of the node and number of cores in each socket, from slurm.conf, for example
    "2x4". Without this field, the numbers in `cores` have no meaning. Comparisons of allocations ignore
    this field, because Slurm does not grant the sockets. Empty if Slurm reports no cores, and on Pods of
    an earlier version of the extender."""
    slurm_node: str = field(default="", compare=False)
    """The Node's name in Slurm at the time of the grant. Empty if this is the Node's own name. The field
    keeps the name, because the Node's label may change after the grant. Comparisons of allocations
    ignore this field, because older allocations lack the name."""
    rank: int | None = field(default=None, compare=False)
    """Number of the Pod among the Pods of a gang, from 0; None for a single Pod. The rank is only for
    the Pod's containers, so comparisons ignore the rank."""

    @property
    def granted(self) -> str:
        """Returns the text under GRANTED."""
        granted = {
            "v": _VERSION,
            "cores": self.cores,
            "sockets": self.sockets,
            "memoryMiB": self.memory_mb,
            "gres": self.gres,
            "slurmNode": self.slurm_node,
        }
        return orjson.dumps({key: value for key, value in granted.items() if value}).decode()

    def annotations(self) -> dict[str, str]:
        """Returns the annotations that write this allocation onto the Pod."""
        rank = {} if self.rank is None else {RANK: str(self.rank)}
        return {JOB_ID: str(self.job_id), NODE: self.node, GRANTED: self.granted, **rank}

    @classmethod
    def parse(cls, annotations: Mapping[str, str]) -> Self | None:
        """Returns the allocation in a Pod's annotations; None without an allocation, or for a malformed
        allocation."""
        job_id, node = whole_number(annotations.get(JOB_ID, "")), annotations.get(NODE, "")
        if job_id is None or not 0 < len(node) <= _LONGEST_NAME:
            return None
        rank = whole_number(annotations.get(RANK, ""))
        if GRANTED not in annotations:
            return cls(job_id, node, rank=rank)
        try:
            return cls(job_id, node, *_granted(annotations[GRANTED]), rank=rank)
        except ValueError:
            return None


def _granted(text: str) -> tuple[str, str, int, str, str]:
    """Returns devices, cores, memory, sockets and the Slurm node. Raises ValueError for a malformed
    text."""
    fields: Any = (
        orjson.loads(text) if len(text) <= _LONGEST_GRANTED else None
    )  # orjson's error is a ValueError
    if not isinstance(fields, dict) or fields.get("v") != _VERSION:
        raise ValueError(f"not of version {_VERSION}")
    gres, cores, memory_mb = fields.get("gres", ""), fields.get("cores", ""), fields.get("memoryMiB", 0)
    sockets, slurm_node = fields.get("sockets", ""), fields.get("slurmNode", "")
    texts = all(isinstance(each, str) for each in (gres, cores, sockets, slurm_node))
    if not texts or type(memory_mb) is not int:
        raise ValueError("a value of another kind")
    number_list.expand(cores)
    if sockets and not _SOCKETS.fullmatch(sockets):
        raise ValueError("no numbers of sockets and cores")
    if memory_mb < 0:
        raise ValueError("less than no memory")
    return gres, cores, memory_mb, sockets, slurm_node
