"""The slurmd Pod of a Node. The leader assigns a revision of a pool's template, and the node agent
creates the Pod.

A revision is a ControllerRevision, as in a DaemonSet. The content never changes, and the name contains
the hash of the content. So the agent creates exactly the Pod that the leader assigned. If a pool gets an
old template again, the pool's revision is the old revision again.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from hashlib import blake2b
from typing import Any, Final, Self

import orjson

from wellknown.names import SLURMD

TEMPLATES: Final = "slurmd-templates"
"""ConfigMap in the namespace of slurmd Pods: images, Secrets and host paths of each revision."""
AGENTS_FOLDER: Final = "/run/slurm-extender"
"""The node agent's folder on the host, with the agent's socket and the output of `slurmd -G`."""
CONTAINER: Final = "slurmd"
"""The template's container for slurmd."""
MARK: Final = "slurm-extender/"
"""Prefix of the instance type (slurmd --instance-type) of nodes from slurmd Pods. The name of the pool
follows."""
_PREFIX: Final = "slurmd-"
_PULL_PREFIX: Final = "pull-slurmd-"
_LONGEST_NAME: Final = 253
_LONGEST_LABEL: Final = 63
_LONGEST_WORDS: Final = 200
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Assignment:
    """The wanted slurmd Pod of a Node."""

    pool: str
    revision: str = ""
    """The ControllerRevision; "": no slurmd for now."""
    conf: str = ""
    """Digest of slurmd's description of the node (--conf). slurmctld reads the description only once, at
    the node's creation."""
    boots: bool = False
    """True if slurmctld waits for a boot of the node (power saving). If so, slurmd has to claim a
    boot."""
    before: str = ""
    """The revision that served on this Node last. Empty as soon as the new revision serves."""
    failed: str = ""
    """The newer revision that failed on this Node. After the failure, the Node went back to
    `revision`."""
    why: str = ""
    """The message of the failure, cut to _LONGEST_WORDS characters."""

    @property
    def same_for_all(self) -> Self:
        """The assignment without the parts that only one Node has."""
        return replace(self, boots=False, before="", failed="", why="")

    def back(self, why: str) -> Self:
        """Returns the assignment of the previous revision, after a failure of this revision."""
        revision, failed = self.before, self.revision
        return replace(self.same_for_all, revision=revision, failed=failed, why=why[:_LONGEST_WORDS])

    def annotations(self) -> dict[str, str]:
        """Returns the annotation that assigns a Node."""
        document = {"v": _VERSION, **{key: value for key, value in asdict(self).items() if value}}
        return {SLURMD: orjson.dumps(document).decode()}

    @classmethod
    def on(cls, annotations: Mapping[str, str]) -> Self | None:
        """Returns the assignment in a Node's annotations; None without an assignment, or for an unknown
        version."""
        try:
            document: Any = orjson.loads(annotations[SLURMD])
        except (KeyError, ValueError):
            return None
        if not isinstance(document, dict) or document.get("v") != _VERSION:
            return None
        pool, revision, conf, before, failed = names = [
            document.get(key, "") for key in ("pool", "revision", "conf", "before", "failed")
        ]
        boots, why = document.get("boots", False), document.get("why", "")
        texts = all(isinstance(text, str) and len(text) <= _LONGEST_LABEL for text in names)
        words = isinstance(why, str) and len(why) <= _LONGEST_WORDS
        right = texts and words and pool and isinstance(boots, bool)
        return cls(pool, revision, conf, boots, before, failed, why) if right else None


def pod_name(node: str) -> str:
    """Returns the name of a Node's slurmd Pod. A Node has only one such name, so kube-apiserver rejects
    a second slurmd Pod of the Node."""
    return _named(_PREFIX, node)


def pull_pod_name(node: str) -> str:
    """Returns the name of the Pod that pulls the images of a Node's next slurmd Pod."""
    return _named(_PULL_PREFIX, node)


def _named(prefix: str, node: str) -> str:
    whole = prefix + node
    if len(whole) <= _LONGEST_NAME:
        return whole
    digest = digest_of(node)
    return f"{whole[: _LONGEST_NAME - len(digest) - 1].rstrip('.-')}-{digest}"


def revision_name(pool: str, data: Mapping[str, Any]) -> str:
    """Returns the name of a pool's revision with this content."""
    return f"{pool}-{digest_of(data)}"


def digest_of(content: Any) -> str:
    """Returns a short text that differs between contents."""
    return blake2b(orjson.dumps(content, option=orjson.OPT_SORT_KEYS), digest_size=5).hexdigest()
