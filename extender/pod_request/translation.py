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

DEFAULT_SCHEDULER = "default-scheduler"  # the scheduler of a Pod without `schedulerName`


@dataclass(frozen=True, slots=True)
class TranslationConfig:
    """The settings of the translation. Only KillWait, in `grace`, comes from Slurm."""

    annotation_prefix: str = DEFAULT_PREFIX
    scheduler_name: str = "slurm-scheduler"
    take_schedulers: tuple[str, ...] = ()
    """Names of other schedulers. New Pods with such a scheduler also go to Slurm."""
    gres: Mapping[str, str] = field(default_factory=lambda: GRES)
    """The GRES (name or name:type) of each extended resource. If a resource is not listed, only
    kube-scheduler counts the resource."""
    not_gpus: frozenset[str] = frozenset()
    """Extended resources of GPU_DOMAINS that are no GPUs, such as network devices."""
    grace: GraceRule = field(default_factory=GraceRule)
    page: str = DEFAULT_PAGE  # address of the page for authors of Pods
    cpu_unit: Decimal = Decimal(1)  # number of Kubernetes' logical CPUs in one CPU of Slurm
    scope: Scope = field(default_factory=Scope)
    priority_classes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """For each name of a PriorityClass: values for fields of `JobSpec` (partition, qos)."""
    shared_gpus: SharedGpus = "isolate"
    adopts: bool = False
    """True if a Pod gets a job even if another scheduler has bound the Pod to a node of Slurm
    (`adoption`)."""
    cluster_name: str = ""  # name of the Kubernetes cluster in the comments of jobs
    slurm_bridge: bool = False  # the extender reads slurm-bridge's annotations, too
    gangs_by_default: bool = False  # Jobs are gangs without the annotation `gang`

    def uncounted_gpus(self, amounts: Mapping[str, Decimal]) -> tuple[str, ...]:
        """Returns the requested resources that are GPUs or parts of GPUs but have no GRES."""
        asked = gpu_resources(name for name, amount in amounts.items() if amount > 0)
        return tuple(n for n in asked if n not in self.gres and n not in self.not_gpus)

    def reads(self, annotation: str) -> bool:
        """Returns True if a Pod asks for Slurm by an annotation with this name."""
        theirs = self.slurm_bridge and slurm_bridge.is_theirs(annotation)
        return theirs or annotation.startswith(self.annotation_prefix)

    def asks(self, manifest: Manifest) -> bool:
        """Returns True if a Pod names the extender's scheduler or a scheduler of `take_schedulers`. Also
        returns True if a Pod names no scheduler and has an annotation for Slurm."""
        named = scheduler_of(manifest)
        if named == self.scheduler_name or named in self.take_schedulers:
            return True
        annotations = manifest["metadata"].get("annotations") or {}
        return named == DEFAULT_SCHEDULER and any(self.reads(key) for key in annotations)

    def taken_over(self, manifest: Manifest) -> tuple[str, ...]:
        """Returns the warning about a Pod of one of `take_schedulers`; empty for any other Pod."""
        named = scheduler_of(manifest)
        if named == self.scheduler_name or named not in self.take_schedulers:
            return ()
        return self.see(
            "scope",
            f"schedulerName: {named} becomes {self.scheduler_name}, by SLURM_EXTENDER_TAKE_SCHEDULERS",
        )

    def manages(self, manifest: Manifest) -> bool:
        """Returns True if the extender manages a Pod. Such a Pod names the extender's scheduler (/mutate
        writes the name). The Pod is also in scope, or was in scope earlier, and still has the extender's
        gate, attempt or job."""
        if manifest["spec"].get("schedulerName") != self.scheduler_name:
            return False
        return self.scope.everything or self.scope.problem(manifest) is None or _is_marked(manifest)

    def see(self, section: str, *messages: str | None) -> tuple[str, ...]:
        """Returns all messages except None, each with a link to a section of the page."""
        return tuple(f"{each} ({self.page}#{section})" for each in messages if each is not None)


def scheduler_of(manifest: Manifest) -> str:
    """Returns the scheduler of a Pod."""
    return manifest["spec"].get("schedulerName") or DEFAULT_SCHEDULER


def _is_marked(manifest: Manifest) -> bool:
    annotations = manifest["metadata"].get("annotations") or {}
    gates = (gate["name"] for gate in manifest["spec"].get("schedulingGates") or ())
    return ATTEMPT in annotations or JOB_ID in annotations or GATE in gates
