"""How an installation reads Pods: what is asked of Slurm for what a Pod says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from extender.request.annotations import DEFAULT_PAGE
from extender.request.grace_period import GraceRule
from extender.request.scope import Scope
from extender.request.shared_gpus import SharedGpus
from kubernetes_client.protocol import Manifest
from wellknown.names import ATTEMPT, DEFAULT_PREFIX, GATE, JOB_ID


@dataclass(frozen=True, slots=True)
class TranslationConfig:
    """How this installation reads Pods. All of it comes from the settings, but for what Slurm tells of
    its KillWait."""

    annotation_prefix: str = DEFAULT_PREFIX
    scheduler_name: str = "slurm-scheduler"
    gres: Mapping[str, str] = field(
        default_factory=lambda: {"nvidia.com/gpu": "gpu", "amd.com/gpu": "gpu"}
    )
    """Extended resource name -> GRES (name or name:type); others are kube-scheduler's alone."""
    grace: GraceRule = field(default_factory=GraceRule)
    page: str = DEFAULT_PAGE
    """Where Pod authors are told to read on."""
    cpu_unit: Decimal = Decimal(1)
    """How many of the CPUs that Pods ask for (logical ones) one of Slurm's CPUs stands for."""
    scope: Scope = field(default_factory=Scope)
    priority_classes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """What a PriorityClass asks Slurm for: by its name, fields of `JobSpec` (partition, qos)."""
    shared_gpus: SharedGpus = "isolate"
    """What becomes of a Pod whose GPUs a native job may use as well."""
    adopts: bool = False
    """Whether Pods that another scheduler bound to Slurm's nodes get jobs (`adoption`)."""

    def asks(self, manifest: Manifest) -> bool:
        """Tells whether a Pod asks for Slurm: it names our scheduler or has one of our annotations."""
        named = manifest["spec"].get("schedulerName") == self.scheduler_name
        annotations = manifest["metadata"].get("annotations") or {}
        return named or any(key.startswith(self.annotation_prefix) for key in annotations)

    def manages(self, manifest: Manifest) -> bool:
        """Tells whether a Pod is ours to place, or to tell why not: it names our scheduler, as /mutate
        has it of those that ask, and is in scope, or was when it got our gate or a job. What it holds
        is not forgotten when it leaves the scope."""
        if manifest["spec"].get("schedulerName") != self.scheduler_name:
            return False
        return self.scope.everything or self.scope.problem(manifest) is None or _is_marked(manifest)

    def see(self, section: str, *told: str | None) -> tuple[str, ...]:
        """Returns what is told to a Pod's author, if anything is, with where to read more."""
        return tuple(f"{each} ({self.page}#{section})" for each in told if each is not None)


def _is_marked(manifest: Manifest) -> bool:
    annotations = manifest["metadata"].get("annotations") or {}
    gates = (gate["name"] for gate in manifest["spec"].get("schedulingGates") or ())
    return ATTEMPT in annotations or JOB_ID in annotations or GATE in gates
