"""Settings: read once from the environment, validated together, frozen, printed without secrets."""

import re
import socket
from decimal import Decimal
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from extender.node_sync.drain_decision import TAINT, DrainSettings
from extender.node_view.view_updater import SlurmDefaults
from extender.pod_request.annotations import DEFAULT_PAGE, PUBLISHED
from extender.pod_request.devices.shared_gpus import SharedGpus
from extender.pod_request.grace_period import DefaultGrace, GraceRule
from extender.pod_request.scope import Scope, Selector
from extender.pod_request.translation import DEFAULT_SCHEDULER, TranslationConfig
from extender.record.config import PlacementConfig
from service.settings import Names, Port, listed, read_json
from wellknown.job_key import JobIdRange
from wellknown.names import (
    DEFAULT_PREFIX,
    DEVICE_PROBLEM,
    DOMAIN,
    GRES,
    NODE_NAME_LABEL,
    SLURM_OUT_OF_SERVICE,
)
from wellknown.node_mapping import is_kubelets
from wellknown.quoting import quoted
from wellknown.resources import parse_quantity

Cpus = Annotated[Decimal, BeforeValidator(parse_quantity)]

_GRES = re.compile(r"[A-Za-z]\w*(?::(?!\d+[KMG]?$)\w[\w.-]*)?", re.ASCII | re.IGNORECASE)


def _is_gres(text: str) -> str:
    """As in slurm.conf(5) Gres. What reads like a count ("8", "1g") cannot be a type there."""
    if text and not _GRES.fullmatch(text):
        raise ValueError("a GRES is a name, like gpu, or a name and a type, like gpu:h100")
    return text


Gres = Annotated[str, AfterValidator(_is_gres)]

Namespace = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]

_OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")

_CLASS = re.compile(r"([a-z0-9.-]+)=(partition|qos):([^,:=\s]+)", re.ASCII)


def _mapped(given: object) -> object:
    """Returns the requests of PriorityClasses by class and field."""
    if not isinstance(given, str):
        return given
    mapped: dict[str, dict[str, str]] = {}
    for one in filter(None, (part.strip() for part in given.split(","))):
        found = _CLASS.fullmatch(one)
        if found is None:
            raise ValueError(f"{quoted(one)} is not like urgent=partition:high or urgent=qos:fast")
        name, field, value = found.groups()
        if mapped.setdefault(name, {}).setdefault(field, value) != value:
            raise ValueError(f"{name} has two values for its {field}")
    return mapped


def _own_namespace() -> str:
    return _OWN_NAMESPACE.read_text().strip() if _OWN_NAMESPACE.exists() else "kube-system"


class Settings(BaseSettings):
    """Every setting, each from SLURM_EXTENDER_<NAME>."""

    model_config = SettingsConfigDict(env_prefix="SLURM_EXTENDER_", frozen=True)

    kubeconfig: Path | None = None
    """Absent: the Pod's own service account."""
    namespace: Namespace = Field(default_factory=_own_namespace)
    """The extender's own namespace, with its Lease and its Secret. Outside of a Pod: kube-system."""
    scope: Annotated[tuple[Namespace, ...], NoDecode, BeforeValidator(listed)] = ("cluster",)
    """Whose Pods it looks at (docs/scope.md): everybody's, or those of namespaces, with commas between
    them; blank: its own namespace."""
    pod_selector: Annotated[str, AfterValidator(lambda text: Selector.parse(text).text)] = ""
    """Which of them: a label selector as for `kubectl get -l`; blank: all."""
    cluster_name: str = Field(default="", pattern=r"^[\w.-]{0,63}$")
    """The name of this Kubernetes cluster in the comments of its jobs (`scontrol show job`); blank: the
    comments name none."""
    scheduler_name: str = Field(default="slurm-scheduler", min_length=1)
    """The `schedulerName` of Pods: the profile in the KubeSchedulerConfiguration."""
    take_schedulers: Names = ()
    """Names of other schedulers, with commas between them. Their new Pods in scope go to Slurm, and each
    author gets a warning (docs/migrate.md). Blank: Pods of other schedulers are left alone."""
    scheduler_config_file: Path | None = None
    """The KubeSchedulerConfiguration of the kube-scheduler that asks this replica: /readyz says where
    that would evict Pods for one that Slurm has not let in; read again when the file changes. Absent:
    only such evictions are seen."""
    annotation_prefix: str = Field(default=DEFAULT_PREFIX, pattern=r"^[a-z0-9.-]+/$")
    """What the annotations of docs/annotations.md begin with."""
    slurm_bridge_annotations: bool = False
    """Whether Pods that were written for slurm-bridge are read as well (docs/migrate.md)."""
    gres: Annotated[dict[str, Gres], NoDecode, BeforeValidator(read_json)] = dict(GRES)
    """Extended resource name -> GRES, as JSON: a name, or name:type ("gpu:1g.10gb"). Blank: the resource
    is no GPU, though a vendor of GPUs names it, and Slurm does not count it."""
    shared_gpus: SharedGpus = "isolate"
    """The rule for a Pod that asks for GPUs of a node that native jobs may share, and so may get the
    GPUs of one (docs/annotations.md#shared-gpus): `refuse` it; `isolate` it, by `exclusive: user`,
    where its user is one that only Pods have (the policy's podUsers), and refuse it otherwise; `allow`
    it, with a warning; or let the `node-agent` give each its own, on Nodes that have one."""
    cpu_unit: Cpus = Field(default=Decimal(1), gt=0, le=1024, decimal_places=3)
    """How much of a Pod's CPU one of Slurm's CPUs is ("2", "100m"): docs/resources.md."""
    docs_url: str = Field(default=PUBLISHED + DEFAULT_PAGE, min_length=1)
    """The address of docs/annotations.md; messages to Pod authors point there."""
    node_name_label: str = NODE_NAME_LABEL
    """A label on a Node that names its Slurm node where the names differ; one that no kubelet may put
    onto its own Node."""

    slurmrestd_url: str = Field(default="http://127.0.0.1:6820", pattern=r"^(https?|unix)://")
    """http://host:port, or unix:///path."""
    slurm_token_file: Path
    """A JWT of root or SlurmUser; it is read again when the file changes."""
    slurm_timeout_s: float = Field(default=15.0, gt=0, lt=3600)
    """How long a request to slurmrestd may take."""
    slurm_concurrency: int = Field(default=16, ge=1, le=256)
    """How many requests to slurmrestd are under way at a time."""
    default_partition: str | None = None
    """Slurm's default partition, for slurmrestd before API v0.0.45."""
    preempt_type: str | None = Field(default=None, pattern=r"^preempt/")
    """Slurm's PreemptType, for slurmrestd before API v0.0.45. Until PreemptType is known, the extender
    does not use the fast path."""
    kill_wait_s: int = Field(default=30, ge=7, le=65533)
    """Slurm's KillWait, for slurmrestd before API v0.0.45, and until Slurm reports KillWait."""
    max_job_count: int = Field(default=10_000, ge=1)
    """Slurm's MaxJobCount, for slurmrestd before API v0.0.45: at most half as many placeholders wait, in
    all partitions."""
    max_job_id: int | None = Field(default=None, ge=1)
    """Slurm's MaxJobId, for slurmrestd before API v0.0.45: shows whether native jobs can get ids of
    placeholders."""
    select_type_parameters: Names = ()
    """Slurm's SelectTypeParameters ("CR_Core_Memory"), for slurmrestd before API v0.0.45: /readyz
    reports a problem if memory is not among the parameters."""
    qos_grace: Names = ()
    """The QOS that have a GraceTime, with commas between them: Slurm tells only which partitions have
    one."""
    default_grace: DefaultGrace = "lower"
    """The rule for Kubernetes' default grace of 30 s where KillWait is too short for it: `lower` it,
    with a warning to the Pod's author, or `refuse` the Pod."""
    priority_classes: Annotated[dict[str, dict[str, str]], NoDecode, BeforeValidator(_mapped)] = {}
    """The requests that PriorityClasses make where no annotation does (docs/endings.md), with commas
    between them: "urgent=partition:high,urgent=qos:fast,spare=qos:scavenger"."""
    job_id_first: int = Field(default=1 << 25, ge=1, lt=JobIdRange().end)
    """The first id that placeholders get. Slurm's MaxJobId should be this, or that of several clusters
    which is the lowest."""
    job_id_end: int = Field(default=JobIdRange().end, ge=2, le=JobIdRange().end)
    """The end of the placeholders' ids, which they do not get any more: clusters that share a Slurm
    have a part of the ids each."""
    window: int = Field(default=1000, ge=1)
    """Placeholders that may compete for a partition at a time, shared by their owners; other Pods wait
    in line."""
    fast_path: bool = True
    """Ask Slurm for a node at once (job/allocate) where that hurts nobody; off: every job is queued."""
    poll_interval_s: float = Field(default=0.25, gt=0, lt=3600)
    """How often Slurm is asked for jobs' states while a Pod waits; else a quarter as often."""
    unbound_deadline_s: float = Field(default=30.0, gt=0, lt=86400)
    """How long a granted job is kept while its Pod is not bound."""
    volume_bind_timeout_s: float = Field(default=600.0, ge=0, lt=86400)
    """For how long kube-scheduler waits for a Pod's volumes: bindTimeoutSeconds of its VolumeBinding."""
    evictions_per_minute: int = Field(default=500, ge=0)
    """The eviction limit: how many Pods are deleted in any minute because their jobs ended otherwise
    than by their time limit, their deadline or themselves, and jobs because their Pods are gone.
    Deletions over it wait, preempted Pods the least (docs/audit.md). 0: nothing is deleted."""
    audit_interval_s: float = Field(default=120.0, gt=0, lt=86400)
    """How often the leader compares both systems (docs/audit.md); less often where Slurm has thousands
    of jobs: an answer about all of them costs 2 kB a second at most, on average."""
    unmanaged_pods: Literal["fit", "adopt", "ignore"] = "fit"
    """Pods that Slurm does not know of: fit them into what it leaves of its nodes; have it know of them
    as well, by a job for each that is bound there; or ignore them."""

    drain_nodes: bool = True
    """Drain in Slurm, with a reason of the extender's, the nodes of Nodes that are cordoned, tainted or
    not ready, or where a Pod outstays its job. Off: the extender's drains are taken back."""
    drain_taints: Names = ()
    """Keys of taints that drain, with commas between them."""
    drain_conditions: Names = (DEVICE_PROBLEM,)
    """Types of conditions that drain where they are True, with commas between them: the node agent's, by
    default."""
    taint_nodes: bool = False
    """Put the taint slurm-extender.io/out-of-service on Nodes that Slurm has drained or down."""

    policy_file: Path | None = None
    """The policy: which Pods may ask for what (docs/policy.md); read again when the file changes."""
    policy: Literal["restricted", "open"] | None = None
    """The policy where there is no file: `open` allows anything, `restricted` (the default) no Pod."""

    pools_file: Path | None = None
    """The pools of slurmd Pods (docs/pools.md); read again when the file changes."""
    pools_namespace: str = "slurm-nodes"
    """Where slurmd Pods are. Whoever may make Pods there may read its Secrets: keep the extender's
    elsewhere."""

    replica: str = Field(default_factory=socket.gethostname, min_length=1)
    """This replica's name in the Lease; it must differ from all others'. In a Pod: the Pod's name."""
    lease_duration_s: int = Field(default=5, ge=2, lt=3600)
    """How long the Lease of a leader that has died keeps others from leading."""

    drain_s: float = Field(default=3.0, ge=0, lt=600)
    """How long a replica that is ending still answers, so that callers find another."""

    listen_address: str = "0.0.0.0"  # noqa: S104 -- admission and probes come from other hosts
    """Where all ports but the scheduler's listen (docs/listeners.md)."""
    scheduler_address: str = "127.0.0.1"
    """kube-scheduler's verbs bind Pods: only programs on this host may call them, unless callers show a
    certificate."""
    scheduler_client_ca_file: Path | None = None
    """Authorities (PEM) of the certificates that kube-schedulers show (docs/listeners.md). The verbs
    are then served with TLS, and to no other callers; read again when the file changes."""
    scheduler_port: Port = 8888
    """kube-scheduler's verbs."""
    admission_port: Port = 8443
    """/mutate and /validate, for kube-apiserver."""
    hooks_port: Port = 8000
    """Pushes and the gate, for Slurm's scripts (docs/slurm-scripts.md)."""
    metrics_port: Port = 8080
    """/metrics, for Prometheus."""
    health_port: Port = 8081
    """/healthz and /readyz, for the kubelet."""
    tls_cert_file: Path | None = None
    """The webhooks' certificate, as in a mounted Secret; read again when it changes."""
    tls_key_file: Path | None = None
    """The certificate's key, likewise."""
    tls_secret: str | None = None
    """Instead of files: the Secret, beside the Lease, in which the replicas keep a certificate of their
    own. Neither: no webhooks."""
    tls_names: Names = ()
    """The names and addresses by which kube-apiserver calls the webhooks, with commas between them;
    blank: the Service slurm-extender in the namespace."""
    admission_client_ca_file: Path | None = None
    """Authorities (PEM) of the certificates that kube-apiservers show, likewise. Absent: everybody that
    reaches the port may ask for a review of a Pod."""
    webhook_configuration: str = "slurm-extender"
    """Where that certificate's authority is written (both kinds of webhook configuration)."""
    hooks_token_file: Path | None = None
    """The token of Slurm's pushes (deploy/slurm); read again when the file changes. Absent: no
    pushes."""
    job_info: bool = False
    """Whether the leader has a metric for each bound Pod, with the user and the account of the job
    (docs/metrics.md#the-use-of-gpus): one series for each Pod, and names of users for all who scrape."""
    log_level: str = Field(default="INFO", pattern=r"^(DEBUG|INFO|WARNING|ERROR)$")
    """The least level of the lines in the log."""

    @model_validator(mode="after")
    def _tls_comes_in_pairs(self) -> Self:
        if (self.tls_cert_file is None) != (self.tls_key_file is None):
            raise ValueError("TLS_CERT_FILE and TLS_KEY_FILE belong together")
        if self.tls_secret is not None and self.tls_cert_file is not None:
            raise ValueError("TLS_SECRET stands instead of TLS_CERT_FILE and TLS_KEY_FILE")
        return self

    @model_validator(mode="after")
    def _callers_who_show_certificates_are_shown_one(self) -> Self:
        authorities = self.scheduler_client_ca_file or self.admission_client_ca_file
        if authorities is not None and self.tls_secret is None and self.tls_cert_file is None:
            raise ValueError(
                "SCHEDULER_CLIENT_CA_FILE and ADMISSION_CLIENT_CA_FILE need a certificate to serve with:"
                " TLS_CERT_FILE and TLS_KEY_FILE, or TLS_SECRET"
            )
        return self

    @model_validator(mode="after")
    def _strangers_bind_no_pods(self) -> Self:
        if self.scheduler_client_ca_file is None and not _is_of_this_host(self.scheduler_address):
            raise ValueError(
                f"SCHEDULER_ADDRESS is {self.scheduler_address}, which other hosts can reach, and who"
                " reaches it can have Pods bound: set SCHEDULER_CLIENT_CA_FILE, so that callers must"
                " show a certificate, or an address of this host alone, like 127.0.0.1"
            )
        return self

    @model_validator(mode="after")
    def _there_are_ids_and_one_policy(self) -> Self:
        if self.job_id_end <= self.job_id_first:
            raise ValueError("JOB_ID_END must be above JOB_ID_FIRST")
        if self.policy_file is not None and self.policy is not None:
            raise ValueError("POLICY is for where there is no POLICY_FILE: the file says it as `preset`")
        return self

    @model_validator(mode="after")
    def _pools_are_drained(self) -> Self:
        if self.pools_file is not None and not self.drain_nodes:
            raise ValueError(
                "POOLS_FILE needs DRAIN_NODES: slurmd leaves a cordoned Node once it is drained"
            )
        return self

    @field_validator("drain_taints")
    @classmethod
    def _not_our_own_taint(cls, keys: tuple[str, ...]) -> tuple[str, ...]:
        if TAINT.key in keys:
            raise ValueError(f"{TAINT.key} says what Slurm did: it cannot be why")
        return keys

    @field_validator("drain_conditions")
    @classmethod
    def _not_our_own_condition(cls, kinds: tuple[str, ...]) -> tuple[str, ...]:
        if SLURM_OUT_OF_SERVICE in kinds:
            raise ValueError(f"{SLURM_OUT_OF_SERVICE} says what Slurm did: it cannot be why")
        if "Ready" in kinds:
            raise ValueError("Ready drains where it is not True, always")
        return kinds

    @field_validator("scope")
    @classmethod
    def _all_or_some(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if "cluster" in names and len(names) > 1:
            raise ValueError("`cluster` is every namespace, and stands alone")
        return names

    @field_validator("scheduler_name")
    @classmethod
    def _not_everybodys_scheduler(cls, name: str) -> str:
        if name == DEFAULT_SCHEDULER:
            raise ValueError("every Pod that names no scheduler would be ours: give the profile a name")
        return name

    @field_validator("take_schedulers")
    @classmethod
    def _not_kubernetes_own_scheduler(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if DEFAULT_SCHEDULER in names:
            raise ValueError(
                f"{DEFAULT_SCHEDULER} cannot be taken over: label Namespaces with {DOMAIN}every-pod=true"
                " instead"
            )
        return names

    @field_validator("node_name_label")
    @classmethod
    def _no_kubelets_label(cls, label: str) -> str:
        if is_kubelets(label):
            raise ValueError(
                f"{label}: a kubelet may put that onto its own Node, and take another's Pods by it; take"
                f" one under node-restriction.kubernetes.io/, such as {NODE_NAME_LABEL}"
            )
        return label

    @field_validator("annotation_prefix")
    @classmethod
    def _prefix_is_not_ours(cls, prefix: str) -> str:
        if prefix == DOMAIN:
            raise ValueError(f"{DOMAIN} is kept for what the extender itself writes")
        return prefix

    @property
    def translation(self) -> TranslationConfig:
        """Returns the translation, while Slurm has not told its KillWait."""
        return TranslationConfig(
            self.annotation_prefix,
            self.scheduler_name,
            take_schedulers=self.take_schedulers,
            gres={name: counted for name, counted in self.gres.items() if counted},
            not_gpus=frozenset(name for name, counted in self.gres.items() if not counted),
            grace=GraceRule(self.kill_wait_s, self.default_grace),
            page=self.docs_url,
            cpu_unit=self.cpu_unit,
            scope=Scope.of(self.namespaces, self.pod_selector),
            priority_classes=self.priority_classes,
            shared_gpus=self.shared_gpus,
            adopts=self.unmanaged_pods == "adopt",
            cluster_name=self.cluster_name,
            slurm_bridge=self.slurm_bridge_annotations,
        )

    @property
    def namespaces(self) -> tuple[str, ...] | None:
        """Returns the namespaces in scope, None for all."""
        return None if self.scope == ("cluster",) else self.scope or (self.namespace,)

    @property
    def webhook_names(self) -> tuple[str, ...]:
        """Returns the names by which kube-apiserver calls the webhooks."""
        return self.tls_names or (f"slurm-extender.{self.namespace}.svc",)

    @property
    def drain_settings(self) -> DrainSettings:
        """Returns the settings for nodes that one of the systems takes out of service."""
        taints, conditions = frozenset(self.drain_taints), frozenset(self.drain_conditions)
        return DrainSettings(self.drain_nodes, taints, self.taint_nodes, conditions)

    @property
    def slurm_defaults(self) -> SlurmDefaults:
        """Returns what is taken for Slurm's settings where slurmrestd does not tell them."""
        return SlurmDefaults(
            self.default_partition,
            self.preempt_type,
            self.kill_wait_s,
            self.qos_grace,
            self.max_job_count,
            self.select_type_parameters,
        )

    @property
    def placeholder_ids(self) -> JobIdRange:
        """Returns the ids that placeholders may have, independently of Slurm's MaxJobId."""
        return JobIdRange(self.job_id_first, self.job_id_end)

    def placement_config(self, cluster: str, kill_wait_s: int | None = None) -> PlacementConfig:
        """Returns placement's settings for this Kubernetes cluster and a Slurm with this KillWait; None
        where Slurm does not tell it."""
        return PlacementConfig(
            cluster=cluster,
            ids=self.placeholder_ids,
            window=self.window,
            fast_path=self.fast_path,
            unbound_deadline=self.unbound_deadline_s,
            volume_deadline=self.volume_bind_timeout_s + self.unbound_deadline_s,
            leaves_within=GraceRule(kill_wait_s or self.kill_wait_s).leaves_within,
            evictions_per_minute=self.evictions_per_minute,
            annotation_prefix=self.annotation_prefix,
        )


def _is_of_this_host(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"
