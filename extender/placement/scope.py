"""Which Pods this installation looks at. A Pod outside of its scope is transparent to it: it is neither
gated nor given a job, whatever its annotations say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Manifest = Mapping[str, Any]

DEFAULT_SCHEDULER = "default-scheduler"
"""What kube-apiserver writes where a Pod names none."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Namespaces (None: all of them) and labels that a Pod must have (none: any will do).

    With `every_pod` a Pod in scope need not ask for Slurm, by an annotation or by our scheduler's name:
    admission takes each that names no other scheduler.
    """

    namespaces: frozenset[str] | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    every_pod: bool = False

    @property
    def whole_cluster(self) -> bool:
        """Tells whether no Pod is out of scope."""
        return self.namespaces is None and not self.labels

    def covers(self, manifest: Manifest) -> bool:
        """Tells whether a Pod is in scope, by what it is now."""
        metadata = manifest["metadata"]
        namespace = metadata.get("namespace") or "default"
        labels = metadata.get("labels") or {}
        here = self.namespaces is None or namespace in self.namespaces
        return here and all(labels.get(key) == value for key, value in self.labels.items())

    def takes_in(self, manifest: Manifest) -> bool:
        """Tells whether admission makes a Pod in scope ours though it does not ask for it."""
        chosen = manifest["spec"].get("schedulerName") or DEFAULT_SCHEDULER
        return self.every_pod and chosen == DEFAULT_SCHEDULER
