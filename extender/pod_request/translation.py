"""The settings by which an installation translates Pods into jobs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from extender.pod_request import slurm_bridge
from extender.pod_request.annotations import DEFAULT_PAGE
from extender.pod_request.devices.shared_gpus import SharedGpus
from extender.pod_request.grace_period import GraceRule
from extender.pod_request.scope import Scope
from kubernetes_client.protocol import Manifest
from wellknown.names import ATTEMPT, DEFAULT_PREFIX, GATE, JOB_ID
from wellknown.resources import gpu_resources

DEFAULT_SCHEDULER = "default-scheduler"
"""Name of the scheduler of a Pod without `schedulerName`."""


@dataclass(frozen=True, slots=True)
class TranslationConfig:
    """The settings of the translation. Only KillWait comes from Slurm."""

    annotation_prefix: str = DEFAULT_PREFIX
    scheduler_name: str = "slurm-scheduler"
    take_schedulers: tuple[str, ...] = ()
    """Names of other schedulers. Their new Pods go to Slurm, like Pods of the extender's scheduler."""
    gres: Mapping[str, str] = field(
        default_factory=lambda: {"nvidia.com/gpu": "gpu", "amd.com/gpu": "gpu"}
    )
    """Extended resource name -> GRES (name or name:type); others are kube-scheduler's alone."""
    not_gpus: frozenset[str] = frozenset()
    """Extended resources of GPU_DOMAINS that are no GPUs, such as network devices."""
    grace: GraceRule = field(default_factory=GraceRule)
    page: str = DEFAULT_PAGE
    """The address of the page for Pod authors."""
    cpu_unit: Decimal = Decimal(1)
    """How many logical CPUs, which Pods ask for, one of Slurm's CPUs stands for."""
    scope: Scope = field(default_factory=Scope)
    priority_classes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """What a PriorityClass asks Slurm for: by its name, fields of `JobSpec` (partition, qos)."""
    shared_gpus: SharedGpus = "isolate"
    """The rule for a Pod whose GPUs a native job may use as well."""
    adopts: bool = False
    """Whether Pods that another scheduler bound to Slurm's nodes get jobs (`adoption`)."""
    cluster_name: str = ""
    """The name of the Kubernetes cluster in the comments of jobs; "" for none."""
    slurm_bridge: bool = False
    """Whether slurm-bridge's annotations are read, too."""

    def uncounted_gpus(self, amounts: Mapping[str, Decimal]) -> tuple[str, ...]:
        """Returns the requested resources that are GPUs, or parts of them, and no GRES."""
        asked = gpu_resources(name for name, amount in amounts.items() if amount > 0)
        return tuple(n for n in asked if n not in self.gres and n not in self.not_gpus)

    def reads(self, annotation: str) -> bool:
        """Tells whether an annotation of this name asks for Slurm."""
        theirs = self.slurm_bridge and slurm_bridge.is_theirs(annotation)
        return theirs or annotation.startswith(self.annotation_prefix)

    def asks(self, manifest: Manifest) -> bool:
        """Returns True if a Pod names the extender's scheduler or one of `take_schedulers`, or if a Pod
        names no scheduler and has an annotation for Slurm. Annotations of other schedulers' Pods do not
        count."""
        named = scheduler_of(manifest)
        if named == self.scheduler_name or named in self.take_schedulers:
            return True
        annotations = manifest["metadata"].get("annotations") or {}
        return named == DEFAULT_SCHEDULER and any(self.reads(key) for key in annotations)

    def taken_over(self, manifest: Manifest) -> tuple[str, ...]:
        """Returns a warning for the author of a Pod that is taken over from another scheduler."""
        named = scheduler_of(manifest)
        if named == self.scheduler_name or named not in self.take_schedulers:
            return ()
        return self.see(
            "scope",
            f"schedulerName: {named} becomes {self.scheduler_name}, by SLURM_EXTENDER_TAKE_SCHEDULERS",
        )

    def manages(self, manifest: Manifest) -> bool:
        """Tells whether the extender has to place a Pod, or to tell why not. The Pod names the
        extender's scheduler (/mutate writes it into Pods that ask for Slurm), and is in scope, or was
        when it got its gate or a job: a Pod that leaves the scope does not lose these."""
        if manifest["spec"].get("schedulerName") != self.scheduler_name:
            return False
        return self.scope.everything or self.scope.problem(manifest) is None or _is_marked(manifest)

    def see(self, section: str, *told: str | None) -> tuple[str, ...]:
        """Returns words for a Pod's author with a link to the page; nothing where there are no words."""
        return tuple(f"{each} ({self.page}#{section})" for each in told if each is not None)


def scheduler_of(manifest: Manifest) -> str:
    """Returns the name of a Pod's scheduler."""
    return manifest["spec"].get("schedulerName") or DEFAULT_SCHEDULER


def _is_marked(manifest: Manifest) -> bool:
    annotations = manifest["metadata"].get("annotations") or {}
    gates = (gate["name"] for gate in manifest["spec"].get("schedulingGates") or ())
    return ATTEMPT in annotations or JOB_ID in annotations or GATE in gates
