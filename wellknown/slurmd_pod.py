"""The slurmd Pod of a Node: the extender's leader assigns a revision of a pool's template to a Node, and
the node agent there makes the Pod.

A revision is a ControllerRevision, as those of a DaemonSet are: it never changes, and its name is its
content's hash. So the agent makes what the leader meant, and an old template that comes back is the old
revision.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final, Self

import orjson

from wellknown.names import SLURMD

CONTAINER: Final = "slurmd"
"""The container of the template that slurmd runs in."""
_PREFIX: Final = "slurmd-"
_LONGEST_NAME: Final = 253
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a Node's slurmd Pod is to be."""

    pool: str
    revision: str

    def annotations(self) -> dict[str, str]:
        """Returns the annotation that assigns a Node."""
        told = {"v": _VERSION, "pool": self.pool, "revision": self.revision}
        return {SLURMD: orjson.dumps(told).decode()}

    @classmethod
    def on(cls, annotations: Mapping[str, str]) -> Self | None:
        """Returns the assignment of a Node with these annotations, None where there is none that is
        understood."""
        try:
            told: Any = orjson.loads(annotations[SLURMD])
        except (KeyError, ValueError):
            return None
        if not isinstance(told, dict) or told.get("v") != _VERSION:
            return None
        pool, revision = told.get("pool"), told.get("revision")
        if not (isinstance(pool, str) and isinstance(revision, str)):
            return None
        return cls(pool, revision)


def pod_name(node: str) -> str:
    """Returns the name of a Node's slurmd Pod: one for a Node, so that kube-apiserver itself refuses a
    second one."""
    whole = _PREFIX + node
    if len(whole) <= _LONGEST_NAME:
        return whole
    digest = blake2b(node.encode(), digest_size=5).hexdigest()
    return f"{whole[: _LONGEST_NAME - len(digest) - 1].rstrip('.-')}-{digest}"


def revision_name(pool: str, data: Mapping[str, Any]) -> str:
    """Returns the name of the revision of a pool that has this content."""
    content = orjson.dumps(data, option=orjson.OPT_SORT_KEYS)
    return f"{pool}-{blake2b(content, digest_size=5).hexdigest()}"
