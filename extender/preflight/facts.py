"""The facts that the checks judge: what was read of both systems, or why it could not be."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple, TypeVar

from extender.control.release_check import Release
from extender.kube_scheduler.configuration import SchedulerConfiguration
from extender.settings import Settings
from kubernetes_client.protocol import Manifest, Right
from slurm_client.model import Node, Partition
from slurm_client.server import Capabilities, Configuration

Value = TypeVar("Value")

RELEASE: Final = "kubernetes-release"
API: Final = "slurm-api"
TOKEN: Final = "token"  # noqa: S105 -- no password
"""The checks that fail if kube-apiserver, slurmrestd or slurmctld, or the token does not work: every
other check that needs one of them is skipped."""


@dataclass(frozen=True, slots=True)
class Unread:
    """A fact that could not be read, and why, in words."""

    why: str
    because: str = ""
    """The check that fails for the same cause; "" if no check does."""


class NotKnown(Exception):
    """A check needs a fact that could not be read; the words say why."""

    def __init__(self, why: str, because: str = "") -> None:
        super().__init__(why)
        self.because = because


def known(fact: Value | Unread) -> Value:
    """Returns a fact. Raises NotKnown where it could not be read."""
    if isinstance(fact, Unread):
        raise NotKnown(fact.why, fact.because)
    return fact


class Answer(StrEnum):
    """Whether something answers at the address of a webhook."""

    YES = "yes"
    NO_SERVICE = "no Service"
    NO = "no"
    UNKNOWN = "unknown"


class Called(NamedTuple):
    """The outcome of a call to the address of a webhook."""

    answer: Answer
    words: str
    """The predicate of a sentence about the address: "does not exist"."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where kube-apiserver calls webhooks: a URL, or a port of a Service."""

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
    """As kubectl names it: "mutatingwebhookconfiguration/slurm-extender"."""
    address: Address
    path: str
    authority: str
    """The CA bundle (caBundle: base64 of PEM); "" if there is none."""
    required: bool
    """True if kube-apiserver rejects an object that the webhook does not answer for."""


@dataclass(frozen=True, slots=True)
class KubernetesFacts:
    """What kube-apiserver tells the account that asks."""

    release: str | Unread
    """"v1.37.2"."""
    account: Manifest | Unread
    """The account that asks (UserInfo)."""
    admission_kinds: frozenset[str] | Unread
    """The kinds of admissionregistration.k8s.io/v1."""
    denied: tuple[Right, ...] | Unread
    """What the extender needs and this account may not."""
    cannot_install: tuple[Right, ...] | Unread
    """What an installation needs and this account may not."""
    nodes: tuple[Manifest, ...] | Unread
    webhooks: Mapping[Webhook, Called] | Unread
    """The webhooks of slurm-extender, of all its installations, and what answers them."""
    policies: tuple[str, ...] | Unread
    """The names of all ValidatingAdmissionPolicies."""
    releases: tuple[Release, ...] | Unread
    """The releases of the chart in the cluster."""
    lease: Manifest | Unread | None
    """The Lease of the extender's replicas: where there is one, an extender has run."""


@dataclass(frozen=True, slots=True)
class Token:
    """The token that is sent to slurmrestd, as it says itself."""

    user: str | None
    """The Slurm user that it speaks for."""
    expires: float | None
    """UNIX seconds."""


@dataclass(frozen=True, slots=True)
class SlurmFacts:
    """What slurmrestd tells."""

    capabilities: Capabilities | Unread
    token: Token | Unread
    accepted: bool | Unread
    """True where slurmctld takes the token."""
    privileged: bool | Unread
    """Whether the token may choose ids of jobs and act for other users."""
    configuration: Configuration | Unread
    nodes: tuple[Node, ...] | Unread
    partitions: tuple[Partition, ...] | Unread
    newest_job_id: int | Unread | None
    """The newest of the ids that Slurm gives by itself, where it does not tell the next one."""
    waiting_jobs: int | Unread
    """Number of jobs that wait, of all users."""


@dataclass(frozen=True, slots=True)
class Facts:
    """All facts, and the settings that they are compared with. `now` is in UNIX seconds."""

    settings: Settings
    kubernetes: KubernetesFacts
    slurm: SlurmFacts
    scheduler: SchedulerConfiguration | Unread
    variables: Mapping[str, str | None]
    """Environment variables that are no setting, each with the setting probably meant."""
    now: float
    asked_partitions: Mapping[str, str]
    """The partitions that the settings and the policy name, each with where."""
