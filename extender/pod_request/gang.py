"""Reads the gang of a Pod: the set of Pods that have one job, and start together or not at all.

The Pods of a gang are in one namespace, name the same gang, and request the same amounts. The job's id
is computed from the uid of the gang, so a user must not be able to choose the uid. Therefore the uid is
a digest of the namespace and the name.
"""

from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Any, Final, NamedTuple, Self

from slurm_client.gres import SHARED
from slurm_client.model import JobSpec

_FIELDS: Final = {"gang": "name", "gang_size": "size", "members_per_node": "members_per_node"}
"""The fields of `Gang`, by the field of the annotation (`annotations.GANG_ANNOTATIONS`)."""


_NAMES: Final = ("gang", "gang-size", "members-per-node")
"""The annotations, in the order of the fields of `Gang`."""


class Gang(NamedTuple):
    """The gang that a Pod's annotations name. A missing annotation is None."""

    name: str | None = None
    size: int | None = None
    """Number of Pods."""
    members_per_node: int | None = None
    """Number of Pods on each node. None: Slurm packs the Pods onto as few nodes as possible."""

    @classmethod
    def taken_from(cls, fields: Mapping[str, Any]) -> tuple[Self | None, dict[str, Any]]:
        """Returns the gang in the fields of annotations, and the other fields. The gang is None without
        an annotation for gangs."""
        own = {_FIELDS[name]: value for name, value in fields.items() if name in _FIELDS}
        rest = {name: value for name, value in fields.items() if name not in _FIELDS}
        return (cls(**own) if own else None), rest

    def uid(self, namespace: str) -> str:
        """Returns the uid of the gang, which no gang of another namespace has, and no Pod."""
        digest = blake2b(f"{namespace}/{self.name}".encode(), digest_size=16).hexdigest()
        return f"gang-{digest}"

    def problems(self, job: JobSpec, prefix: str) -> Iterator[str]:
        """Yields the problems of a gang whose Pods each request `job`. `prefix` is the prefix of the
        annotations."""
        if self.name is None or self.size is None:
            given = [name for name, value in zip(_NAMES, self, strict=True) if value is not None]
            missing = [f"{prefix}{name}" for name in _NAMES[:2] if name not in given]
            yield f"annotation {prefix}{given[0]}: a gang also needs {' and '.join(missing)}"
            return
        here = self.members_per_node
        if here is not None and self.size % here:
            yield (
                f"annotation {prefix}members-per-node: a gang of {self.size} Pods cannot have {here}"
                " Pods on each node: choose a divisor of gang-size, or remove members-per-node"
            )
        if job.required_nodes:
            yield (
                f"annotation {prefix}required-nodes: a gang cannot name its nodes: use constraints,"
                " excluded-nodes, a nodeSelector or node affinity"
            )
        shared = sorted({name.partition(":")[0] for name, _ in job.gres} & SHARED)
        if shared and here != 1:
            yield (
                f"the Pod requests parts of GPUs ({', '.join(shared)}): in a gang, only Pods on"
                " different nodes may have parts of GPUs: set the annotation"
                f" {prefix}members-per-node to 1"
            )
