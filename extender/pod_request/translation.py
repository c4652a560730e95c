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
from wellknown.names import ATTEMPT, DEFAULT_PREFIX, GATE, GRES, JOB_ID
from wellknown.resources import gpu_resources

DEFAULT_SCHEDULER = "default-scheduler"  # of a Pod without `schedulerName`


@dataclass(frozen=True, slots=True)
class TranslationConfig:
    """The settings of the translation. Only KillWait comes from Slurm."""

    annotation_prefix: str = DEFAULT_PREFIX
    scheduler_name: str = "slurm-scheduler"
    take_schedulers: tuple[str, ...] = ()
    """Other schedulers, whose new Pods go to Slurm too."""
    gres: Mapping[str, str] = field(default_factory=lambda: GRES)
    """Extended resource name -> GRES (name or name:type); others are kube-scheduler's alone."""
    not_gpus: frozenset[str] = frozenset()
    """Extended resources of GPU_DOMAINS that are no GPUs, such as network devices."""
    grace: GraceRule = field(default_factory=GraceRule)
    page: str = DEFAULT_PAGE  # for Pod authors
    cpu_unit: Decimal = Decimal(1)  # Kubernetes' logical CPUs in one of Slurm's CPUs
    scope: Scope = field(default_factory=Scope)
    priority_classes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Name of a PriorityClass -> values for `JobSpec` (partition, qos)."""
    shared_gpus: SharedGpus = "isolate"
    adopts: bool = False
    """True if Pods that another scheduler bound to Slurm's nodes get jobs (`adoption`)."""
    cluster_name: str = ""  # the Kubernetes cluster in the comments of jobs
    slurm_bridge: bool = False  # the extender reads slurm-bridge's annotations, too

    def uncounted_gpus(self, amounts: Mapping[str, Decimal]) -> tuple[str, ...]:
        """Returns the requested resources that are GPUs or parts of GPUs, and no GRES."""
        asked = gpu_resources(name for name, amount in amounts.items() if amount > 0)
        return tuple(n for n in asked if n not in self.gres and n not in self.not_gpus)

    def reads(self, annotation: str) -> bool:
        """Returns True if an annotation of this name asks for Slurm."""
        theirs = self.slurm_bridge and slurm_bridge.is_theirs(annotation)
        return theirs or annotation.startswith(self.annotation_prefix)

    def asks(self, manifest: Manifest) -> bool:
        """Returns True for a Pod of the extender's scheduler or of `take_schedulers`, and for a Pod with
        an annotation for Slurm and without a scheduler."""
        named = scheduler_of(manifest)
        if named == self.scheduler_name or named in self.take_schedulers:
            return True
        annotations = manifest["metadata"].get("annotations") or {}
        return named == DEFAULT_SCHEDULER and any(self.reads(key) for key in annotations)

    def taken_over(self, manifest: Manifest) -> tuple[str, ...]:
        """Returns the warning about a Pod of one of `take_schedulers`."""
        named = scheduler_of(manifest)
        if named == self.scheduler_name or named not in self.take_schedulers:
            return ()
        return self.see(
            "scope",
            f"schedulerName: {named} becomes {self.scheduler_name}, by SLURM_EXTENDER_TAKE_SCHEDULERS",
        )

    def manages(self, manifest: Manifest) -> bool:
        """Returns True for a managed Pod: the Pod names the extender's scheduler (/mutate writes the
        name), and is in scope, or got the gate or a job there before."""
        if manifest["spec"].get("schedulerName") != self.scheduler_name:
            return False
        return self.scope.everything or self.scope.problem(manifest) is None or _is_marked(manifest)

    def see(self, section: str, *told: str | None) -> tuple[str, ...]:
        """Returns the messages, without None, each with a link to a section of the page."""
        return tuple(f"{each} ({self.page}#{section})" for each in told if each is not None)


def scheduler_of(manifest: Manifest) -> str:
    """Returns the scheduler of a Pod."""
    return manifest["spec"].get("schedulerName") or DEFAULT_SCHEDULER


def _is_marked(manifest: Manifest) -> bool:
    annotations = manifest["metadata"].get("annotations") or {}
    gates = (gate["name"] for gate in manifest["spec"].get("schedulingGates") or ())
    return ATTEMPT in annotations or JOB_ID in annotations or GATE in gates
