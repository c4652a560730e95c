"""The facts that the checks judge: values from Slurm and Kubernetes, or the reasons why values could not
be read."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple, TypeVar

from extender.execution.release_check import Release
from extender.kube_scheduler.configuration import SchedulerConfiguration
from extender.settings import Settings
from kubernetes_client.protocol import Manifest, Right
from slurm_client.model import Node, Partition
from slurm_client.server import Capabilities, Configuration

Value = TypeVar("Value")

RELEASE: Final = "kubernetes-release"
API: Final = "slurm-api"
TOKEN: Final = "token"  # noqa: S105 -- no password
"""Names of the checks of kube-apiserver, Slurm and the token. If such a check fails, dependent checks
are skipped."""


@dataclass(frozen=True, slots=True)
class Unread:
    """A fact that could not be read, with the reason as a message."""

    why: str
    because: str = ""
    """Name of the check that fails for the same cause; "" if there is no such check."""


class NotKnown(Exception):
    """Raised if a check needs a fact that could not be read. The message is the reason."""

    def __init__(self, why: str, because: str = "") -> None:
        super().__init__(why)
        self.because = because


def known(fact: Value | Unread) -> Value:
    """Returns a fact. Raises NotKnown if the fact could not be read."""
    if isinstance(fact, Unread):
        raise NotKnown(fact.why, fact.because)
    return fact


def reported(value: Value | None, parameter: str) -> Value:
    """Returns a parameter of slurm.conf. Raises NotKnown if slurmrestd does not report the
    parameter."""
    if value is None:
        raise NotKnown(f"slurmrestd reports no {parameter} before API v0.0.45")
    return value


class Answer(StrEnum):
    """The answer from the address of a webhook."""

    YES = "yes"
    NO_SERVICE = "no Service"
    NO = "no"
    UNKNOWN = "unknown"


class Called(NamedTuple):
    """The outcome of a call to the address of a webhook."""

    answer: Answer
    words: str
    """The predicate of a sentence about the address, like "does not exist"."""


@dataclass(frozen=True, slots=True)
class Address:
    """Address to which kube-apiserver sends webhook calls: a URL, or a port of a Service."""

    url: str = ""
    namespace: str = ""
    service: str = ""
    port: int = 443

    def __str__(self) -> str:
        return self.url or f"Service {self.namespace}/{self.service}"


@dataclass(frozen=True, slots=True)
class Webhook:
    """A webhook of slurm-extender."""

    name: str
    configuration: str
    """Name of the configuration for kubectl, like "mutatingwebhookconfiguration/slurm-extender"."""
    address: Address
    path: str
    ca: str
    """The CA bundle (caBundle, in base64 of PEM); "" if there is no CA bundle."""
    required: bool
    """True if kube-apiserver rejects an object when the webhook does not answer."""


@dataclass(frozen=True, slots=True)
class KubernetesFacts:
    """Facts that preflight reads from kube-apiserver."""

    release: str | Unread
    """Version of Kubernetes, like "v1.37.2"."""
    account: Manifest | Unread
    """The account with which preflight calls kube-apiserver (UserInfo)."""
    admission_kinds: frozenset[str] | Unread
    """The kinds of admissionregistration.k8s.io/v1."""
    denied: tuple[Right, ...] | Unread
    """Rights that the extender needs and the account lacks."""
    cannot_install: tuple[Right, ...] | Unread
    """Rights that an installation needs and the account lacks."""
    nodes: tuple[Manifest, ...] | Unread
    device_plugins: Mapping[str, str] | Unread
    """The Pod of a vendor's device plugin ("namespace/name") on each Node with such a Pod."""
    webhooks: Mapping[Webhook, Called] | Unread
    """The webhooks of all installations of slurm-extender, each with the outcome of a call."""
    policies: tuple[str, ...] | Unread
    """The names of all ValidatingAdmissionPolicies."""
    releases: tuple[Release, ...] | Unread
    """The releases of the chart in the cluster."""
    lease: Manifest | Unread | None
    """The Lease of the extender's replicas. None before the first run of an extender."""


@dataclass(frozen=True, slots=True)
class Token:
    """The claims in the token for slurmrestd."""

    user: str | None
    expires: float | None
    """Time of the expiry in UNIX seconds; None if the token does not expire."""


@dataclass(frozen=True, slots=True)
class SlurmFacts:
    """Facts that preflight reads from slurmrestd."""

    capabilities: Capabilities | Unread
    token: Token | Unread
    accepted: bool | Unread
    privileged: bool | Unread
    """True if the token may choose ids of jobs and act for other users."""
    configuration: Configuration | Unread
    nodes: tuple[Node, ...] | Unread
    partitions: tuple[Partition, ...] | Unread
    newest_job_id: int | Unread | None
    """The highest id of a job below the placeholders' range; None if there is no such job."""
    waiting_jobs: int | Unread
    """Number of waiting jobs of all users."""


@dataclass(frozen=True, slots=True)
class Facts:
    """All facts, and the settings for the comparison. `now` is in UNIX seconds."""

    settings: Settings
    kubernetes: KubernetesFacts
    slurm: SlurmFacts
    scheduler: SchedulerConfiguration | Unread
    variables: Mapping[str, str | None]
    """Environment variables that have the prefix of settings, but are no settings. Each variable has the
    most similar setting, or None if no setting is similar."""
    now: float
    asked_partitions: Mapping[str, str]
    """The partitions that the settings and the policy name, each with the setting or rule that names the
    partition."""
