"""The facts that the checks judge: what was read of both systems, or why it could not be."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from extender.kube_scheduler.configuration import SchedulerConfiguration
from extender.settings import Settings
from kubernetes_client.protocol import Manifest, Right
from slurm_client.model import Node, Partition
from slurm_client.server import Capabilities, Configuration

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Unread:
    """A fact that could not be read, and why, in words."""

    why: str


class NotKnown(Exception):
    """A check needs a fact that could not be read; the words say why."""


def known(fact: Value | Unread) -> Value:
    """Returns a fact. Raises NotKnown where it could not be read."""
    if isinstance(fact, Unread):
        raise NotKnown(fact.why)
    return fact


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
    webhooks: tuple[Manifest, ...] | Unread
    """The webhooks of all configurations, mutating and validating."""
    policies: tuple[str, ...] | Unread
    """The names of all ValidatingAdmissionPolicies."""
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
    now: float
    asked_partitions: Mapping[str, str]
    """The partitions that the settings and the policy name, each with where."""
