"""The slurmd Pod of a Node: the extender's leader assigns a revision of a pool's template to a Node, and
the node agent there makes the Pod.

A revision is a ControllerRevision, as those of a DaemonSet are: it never changes, and its name is its
content's hash. So the agent makes what the leader meant, and an old template that comes back is the old
revision.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from hashlib import blake2b
from typing import Any, Final, Self

import orjson

from wellknown.names import SLURMD

CONTAINER: Final = "slurmd"
"""The container of the template that slurmd runs in."""
MARK: Final = "slurm-extender/"
"""The prefix of the instance type (slurmd --instance-type) of nodes that slurmd Pods have made, before
the name of the pool."""
_PREFIX: Final = "slurmd-"
_LONGEST_NAME: Final = 253
_LONGEST_LABEL: Final = 63
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a Node's slurmd Pod is to be."""

    pool: str
    revision: str = ""
    """The ControllerRevision; "": no slurmd runs for the time being."""
    conf: str = ""
    """The digest of what slurmd told slurmctld of the node when that made the node: it is told once."""
    boots: bool = False
    """Whether slurmctld waits for a boot of the node (its power saving), which slurmd has to claim."""

    def annotations(self) -> dict[str, str]:
        """Returns the annotation that assigns a Node."""
        told = {"v": _VERSION, **{key: value for key, value in asdict(self).items() if value}}
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
        pool, revision, conf = (told.get(key, "") for key in ("pool", "revision", "conf"))
        boots = told.get("boots", False)
        texts = all(
            isinstance(text, str) and len(text) <= _LONGEST_LABEL for text in (pool, revision, conf)
        )
        return cls(pool, revision, conf, boots) if texts and pool and isinstance(boots, bool) else None


def pod_name(node: str) -> str:
    """Returns the name of a Node's slurmd Pod: one for a Node, so that kube-apiserver itself refuses a
    second one."""
    whole = _PREFIX + node
    if len(whole) <= _LONGEST_NAME:
        return whole
    digest = digest_of(node)
    return f"{whole[: _LONGEST_NAME - len(digest) - 1].rstrip('.-')}-{digest}"


def revision_name(pool: str, data: Mapping[str, Any]) -> str:
    """Returns the name of the revision of a pool that has this content."""
    return f"{pool}-{digest_of(data)}"


def digest_of(content: Any) -> str:
    """Returns a short text that is another one for other content."""
    return blake2b(orjson.dumps(content, option=orjson.OPT_SORT_KEYS), digest_size=5).hexdigest()
