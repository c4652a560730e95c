"""Settings of the extender: read from the environment at the start, validated together, and frozen.

No setting holds a secret. Instead, settings name the files of secrets."""

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
from extender.setting_types import Cpus, Gres, Namespace, by_priority_class
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

_OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def _own_namespace() -> str:
    return _OWN_NAMESPACE.read_text().strip() if _OWN_NAMESPACE.exists() else "kube-system"


class Settings(BaseSettings):
    """All settings of the extender. For example, the setting `scope` comes from the environment variable
    SLURM_EXTENDER_SCOPE."""

    model_config = SettingsConfigDict(env_prefix="SLURM_EXTENDER_", frozen=True)

    kubeconfig: Path | None = None
    """Path of a kubeconfig file. If absent, the extender uses the Pod's own service account."""
    namespace: Namespace = Field(default_factory=_own_namespace)
    """Namespace of the extender, of its Lease and of its Secret. Outside of a Pod, the default is
    kube-system."""
    scope: Annotated[tuple[Namespace, ...], NoDecode, BeforeValidator(listed)] = ("cluster",)
    """Namespaces whose Pods are in scope (docs/concepts/scope.md). `cluster` means all namespaces. If
    blank, only the extender's own namespace is in scope."""
    pod_selector: Annotated[str, AfterValidator(lambda text: Selector.parse(text).text)] = ""
    """Label selector for the Pods of the namespaces in SLURM_EXTENDER_SCOPE, as for `kubectl get -l`. If
    blank, all these Pods are in scope."""
    cluster_name: str = Field(default="", pattern=r"^[\w.-]{0,63}$")
    """Name of this Kubernetes cluster in the comments of its jobs (`scontrol show job`). If blank, the
    comments name no cluster."""
    scheduler_name: str = Field(default="slurm-scheduler", min_length=1)
    """`schedulerName` of Pods for Slurm, and of the profile in the KubeSchedulerConfiguration."""
    take_schedulers: Names = ()
    """Names of other schedulers. New Pods in scope with such a scheduler also go to Slurm, and each
    author gets a warning (docs/tasks/migrate.md)."""
    scheduler_config_file: Path | None = None
    """File with kube-scheduler's configuration. If kube-scheduler, with this configuration, would evict
    Pods for a Pod that Slurm has not admitted, /readyz reports a problem. Without this file, /readyz
    reports only actual evictions. Reloaded after a change."""
    annotation_prefix: str = Field(default=DEFAULT_PREFIX, pattern=r"^[a-z0-9.-]+/$")
    """Prefix of the annotations in docs/reference/annotations.md."""
    slurm_bridge_annotations: bool = False
    """If `true`, the extender also reads slurm-bridge's annotations (docs/tasks/migrate.md)."""
    gres: Annotated[dict[str, Gres], NoDecode, BeforeValidator(read_json)] = dict(GRES)
    """GRES of each extended resource, as a name or as name:type ("gpu:1g.10gb"). If the GRES is blank,
    the resource is no GPU, and Slurm does not count the resource."""
    shared_gpus: SharedGpus = "isolate"
    """Rule for Pods with GPUs on nodes of native jobs (docs/reference/annotations.md#shared-gpus).
    `refuse` rejects such Pods. `isolate` sets `exclusive: user` for Pods of users without native jobs
    (podUsers in the policy), and rejects Pods of other users. `allow` gives a warning. `node-agent`
    requires a node agent on the Node."""
    cpu_unit: Cpus = Field(default=Decimal(1), gt=0, le=1024, decimal_places=3)
    """Amount of a Pod's CPU that equals one CPU of Slurm, like "2" or "100m"
    (docs/concepts/resources.md)."""
    docs_url: str = Field(default=PUBLISHED + DEFAULT_PAGE, min_length=1)
    """Address of docs/reference/annotations.md, for messages to authors of Pods."""
    node_name_label: str = NODE_NAME_LABEL
    """Label of a Node with the name of the Slurm node as its value, if the names differ. Kubelets must
    not be able to set this label."""
    gangs_by_default: bool = False
    """If `true`, the Pods of a Job with several Pods at a time are a gang, unless the Pods have the
    annotation `gang` (docs/concepts/gangs.md)."""
    topology_tiers: Names = ()
    """Labels of Nodes that name the tiers of the network, from the widest tier to the narrowest. The
    ranks of a gang follow these labels (docs/concepts/gangs.md). Without this setting, the ranks follow
    the names of the nodes in Slurm."""

    slurmrestd_url: str = Field(default="http://127.0.0.1:6820", pattern=r"^(https?|unix)://")
    """Address of slurmrestd: http://host:port, https://host:port or unix:///path."""
    slurm_token_file: Path
    """File with a JWT of root or SlurmUser. Reloaded after a change."""
    slurm_timeout_s: float = Field(default=15.0, gt=0, lt=3600)
    """Time limit in seconds for a request to slurmrestd."""
    slurm_concurrency: int = Field(default=16, ge=1, le=256)
    """Largest number of simultaneous requests to slurmrestd."""
    default_partition: str | None = None
    """Slurm's default partition. Needed only with slurmrestd before API v0.0.45."""
    preempt_type: str | None = Field(default=None, pattern=r"^preempt/")
    """Slurm's PreemptType. Needed only with slurmrestd before API v0.0.45. Until PreemptType is known,
    the extender does not use the fast path (SLURM_EXTENDER_FAST_PATH)."""
    kill_wait_s: int = Field(default=30, ge=7, le=65533)
    """Slurm's KillWait in seconds. Needed only with slurmrestd before API v0.0.45, and until Slurm
    reports KillWait."""
    max_job_count: int = Field(default=10_000, ge=1)
    """Slurm's MaxJobCount. Needed only with slurmrestd before API v0.0.45. At most half as many
    placeholders (jobs of Pods) wait in Slurm's queue, counted over all partitions."""
    max_job_id: int | None = Field(default=None, ge=1)
    """Slurm's MaxJobId. Needed only with slurmrestd before API v0.0.45. With this number, the extender
    sees whether native jobs can get ids of placeholders."""
    select_type_parameters: Names = ()
    """Slurm's SelectTypeParameters, like "CR_Core_Memory". Needed only with slurmrestd before API
    v0.0.45. /readyz reports a problem if memory is not among the parameters."""
    qos_grace: Names = ()
    """Names of the QOS with a GraceTime. Needed because Slurm reports only the GraceTime of
    partitions."""
    default_grace: DefaultGrace = "lower"
    """Rule for Pods with Kubernetes' default grace of 30 s, if KillWait is too short. `lower` shortens
    the grace, with a warning. `refuse` rejects the Pod."""
    priority_classes: Annotated[
        dict[str, dict[str, str]], NoDecode, BeforeValidator(by_priority_class)
    ] = {}
    """Partition or QOS for Pods of a PriorityClass, if the Pods have no annotation for the same value
    (docs/concepts/endings.md). For example:
    "urgent=partition:high,urgent=qos:fast,spare=qos:scavenger"."""
    job_id_first: int = Field(default=1 << 25, ge=1, lt=JobIdRange().end)
    """First job id of placeholders, the jobs of Pods. Set Slurm's MaxJobId to this id. If several
    clusters share a Slurm, set MaxJobId to the lowest such id."""
    job_id_end: int = Field(default=JobIdRange().end, ge=2, le=JobIdRange().end)
    """First id after the placeholders' ids. Clusters that share a Slurm need separate ranges."""
    window: int = Field(default=1000, ge=1)
    """Largest number of placeholders that compete for a partition at a time. The owners of the
    placeholders share this number. Other Pods wait in line, without a job."""
    fast_path: bool = True
    """If `true`, Slurm can grant a node at once (job/allocate), but only to jobs of the token's user
    that preempt nothing. If `false`, Slurm queues every job."""
    poll_interval_s: float = Field(default=0.25, gt=0, lt=3600)
    """Seconds between two requests for the states of jobs while a Pod waits. If no Pod waits, the time
    is four times as long."""
    unbound_deadline_s: float = Field(default=30.0, gt=0, lt=86400)
    """Seconds for which the extender keeps a granted job while its Pod is not bound."""
    volume_bind_timeout_s: float = Field(default=600.0, ge=0, lt=86400)
    """Seconds for which kube-scheduler waits for a Pod's volumes, as in bindTimeoutSeconds of the plugin
    VolumeBinding."""
    evictions_per_minute: int = Field(default=500, ge=0)
    """Largest number of deletions in any minute (docs/concepts/audit.md): Pods whose jobs ended early,
    plus jobs of missing Pods. Further deletions wait. If 0, nothing is deleted."""
    audit_interval_s: float = Field(default=120.0, gt=0, lt=86400)
    """Seconds between two audits (docs/concepts/audit.md). With thousands of jobs, the time is longer,
    so that audits read at most 2 kB per second on average."""
    unmanaged_pods: Literal["fit", "adopt", "ignore"] = "fit"
    """Rule for Pods that the extender does not manage (docs/concepts/unmanaged-pods.md). `fit` gives
    these Pods the room that Slurm leaves. `adopt` also gives jobs to bound Pods. `ignore` does
    neither."""

    drain_nodes: bool = True
    """If `true`, the extender drains a Slurm node whose Node is cordoned, tainted or not ready, or where
    a Pod stays longer than its job. If `false`, the extender takes these drains back."""
    drain_taints: Names = ()
    """Keys of the taints for which the extender drains a node."""
    drain_conditions: Names = (DEVICE_PROBLEM,)
    """Types of the conditions for which the extender drains a node, while the condition is True. The
    default is the node agent's condition."""
    taint_nodes: bool = False
    """If `true`, the extender sets the taint slurm-extender.io/out-of-service on Nodes that are drained
    or down in Slurm."""

    policy_file: Path | None = None
    """File with the policy: the values that each Pod may request from Slurm (docs/concepts/policy.md).
    Reloaded after a change."""
    policy: Literal["restricted", "open"] | None = None
    """Policy if there is no policy file. `open` allows everything. `restricted` (the default) allows no
    Pod."""

    pools_file: Path | None = None
    """File with the pools of slurmd Pods (docs/concepts/pools.md). Reloaded after a change."""
    pools_namespace: str = "slurm-nodes"
    """Namespace of slurmd Pods. The extender belongs in another namespace, because a user who may create
    Pods in this namespace can read its Secrets."""

    replica: str = Field(default_factory=socket.gethostname, min_length=1)
    """Name of this replica in the Lease. All replicas need different names. In a Pod, the default is the
    Pod's name."""
    lease_duration_s: int = Field(default=5, ge=2, lt=3600)
    """Seconds for which the Lease of a dead leader keeps other replicas from leading."""

    drain_s: float = Field(default=3.0, ge=0, lt=600)
    """Seconds for which a replica still answers before the replica ends, so that callers find another
    replica."""

    listen_address: str = "0.0.0.0"  # noqa: S104 -- admission and probes come from other hosts
    """Address of all ports except the scheduler's port (docs/reference/listeners.md)."""
    scheduler_address: str = "127.0.0.1"
    """Address of the scheduler's port. Callers of this port can bind Pods. So without client
    certificates, only a loopback address is valid."""
    scheduler_client_ca_file: Path | None = None
    """File with the CAs (PEM) of kube-schedulers' client certificates (docs/reference/listeners.md). If
    set, the scheduler's port uses TLS, and accepts only callers with such a certificate. Reloaded after
    a change."""
    scheduler_port: Port = 8888
    """Port of the paths under /scheduler, for kube-scheduler."""
    admission_port: Port = 8443
    """Port of /mutate and /validate, for kube-apiserver."""
    hooks_port: Port = 8000
    """Port of the paths under /hooks, for Slurm's scripts (docs/tasks/slurm-scripts.md)."""
    metrics_port: Port = 8080
    """Port of /metrics, for Prometheus."""
    health_port: Port = 8081
    """Port of /healthz and /readyz, for the kubelet."""
    tls_cert_file: Path | None = None
    """File with the certificate of the webhooks, as in a mounted Secret. Reloaded after a change."""
    tls_key_file: Path | None = None
    """File with the key of the webhooks' certificate. Reloaded after a change."""
    tls_secret: str | None = None
    """Secret in the extender's namespace, with a certificate that the replicas create. This setting
    replaces the certificate files. Without Secret and files, there are no webhooks."""
    tls_names: Names = ()
    """Names and addresses by which kube-apiserver calls the webhooks. If blank, kube-apiserver calls the
    Service slurm-extender in the extender's namespace."""
    admission_client_ca_file: Path | None = None
    """File with the CAs (PEM) of kube-apiservers' client certificates (docs/reference/listeners.md). If
    absent, every caller that reaches the port may ask for reviews. Reloaded after a change."""
    webhook_configuration: str = "slurm-extender"
    """Name of the mutating and of the validating webhook configuration. The extender writes the CA of
    its own certificate to both."""
    hooks_token_file: Path | None = None
    """File with the token for the calls of Slurm's scripts (deploy/slurm). Reloaded after a change. If
    absent, the extender accepts no such calls."""
    job_info: bool = False
    """If `true`, the leader has a metric for each bound Pod, with the job's user and account
    (docs/reference/metrics.md#the-use-of-gpus). All scrapers see the users' names."""
    log_level: str = Field(default="INFO", pattern=r"^(DEBUG|INFO|WARNING|ERROR)$")
    """Lowest level of the lines in the log."""

    @model_validator(mode="after")
    def _tls_comes_in_pairs(self) -> Self:
        if (self.tls_cert_file is None) != (self.tls_key_file is None):
            raise ValueError("set both TLS_CERT_FILE and TLS_KEY_FILE, or neither")
        if self.tls_secret is not None and self.tls_cert_file is not None:
            raise ValueError("set either TLS_SECRET, or TLS_CERT_FILE and TLS_KEY_FILE")
        return self

    @model_validator(mode="after")
    def _callers_who_show_certificates_are_shown_one(self) -> Self:
        authorities = self.scheduler_client_ca_file or self.admission_client_ca_file
        if authorities is not None and self.tls_secret is None and self.tls_cert_file is None:
            raise ValueError(
                "SCHEDULER_CLIENT_CA_FILE and ADMISSION_CLIENT_CA_FILE need a server certificate: set"
                " TLS_CERT_FILE and TLS_KEY_FILE, or TLS_SECRET"
            )
        return self

    @model_validator(mode="after")
    def _strangers_bind_no_pods(self) -> Self:
        if self.scheduler_client_ca_file is None and not _is_of_this_host(self.scheduler_address):
            raise ValueError(
                f"SCHEDULER_ADDRESS is {self.scheduler_address}, which other hosts can reach, and every"
                " caller can bind Pods: set SCHEDULER_CLIENT_CA_FILE, so that callers need a"
                " certificate, or an address that only this host can reach, like 127.0.0.1"
            )
        return self

    @model_validator(mode="after")
    def _there_are_ids_and_one_policy(self) -> Self:
        if self.job_id_end <= self.job_id_first:
            raise ValueError("JOB_ID_END must be above JOB_ID_FIRST")
        if self.policy_file is not None and self.policy is not None:
            raise ValueError("set POLICY or POLICY_FILE, not both: a policy file has the value `preset`")
        return self

    @model_validator(mode="after")
    def _pools_are_drained(self) -> Self:
        if self.pools_file is not None and not self.drain_nodes:
            raise ValueError(
                "POOLS_FILE needs DRAIN_NODES: slurmd leaves a cordoned Node only after the drain"
            )
        return self

    @field_validator("drain_taints")
    @classmethod
    def _not_our_own_taint(cls, keys: tuple[str, ...]) -> tuple[str, ...]:
        if TAINT.key in keys:
            raise ValueError(f"{TAINT.key} is the extender's own, and cannot cause a drain")
        return keys

    @field_validator("drain_conditions")
    @classmethod
    def _not_our_own_condition(cls, kinds: tuple[str, ...]) -> tuple[str, ...]:
        if SLURM_OUT_OF_SERVICE in kinds:
            raise ValueError(f"{SLURM_OUT_OF_SERVICE} is the extender's own, and cannot cause a drain")
        if "Ready" in kinds:
            raise ValueError("omit Ready: a Node that is not ready is always drained")
        return kinds

    @field_validator("scope")
    @classmethod
    def _all_or_some(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if "cluster" in names and len(names) > 1:
            raise ValueError("`cluster` means all namespaces: name no other namespace")
        return names

    @field_validator("scheduler_name")
    @classmethod
    def _not_everybodys_scheduler(cls, name: str) -> str:
        if name == DEFAULT_SCHEDULER:
            raise ValueError(
                f"{DEFAULT_SCHEDULER} would send every Pod without a schedulerName to Slurm: set another"
                " name"
            )
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
                f"{label}: a kubelet may set this label on its own Node, and get Pods of another Node;"
                f" choose a label under node-restriction.kubernetes.io/, such as {NODE_NAME_LABEL}"
            )
        return label

    @field_validator("annotation_prefix")
    @classmethod
    def _prefix_is_not_ours(cls, prefix: str) -> str:
        if prefix == DOMAIN:
            raise ValueError(f"{DOMAIN} is reserved for the extender's own annotations")
        return prefix

    @property
    def translation(self) -> TranslationConfig:
        """Returns the settings of the translation. KillWait comes from `kill_wait_s`, until Slurm
        reports KillWait."""
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
            gangs_by_default=self.gangs_by_default,
        )

    @property
    def namespaces(self) -> tuple[str, ...] | None:
        """Returns the namespaces in scope; None for all namespaces."""
        return None if self.scope == ("cluster",) else self.scope or (self.namespace,)

    @property
    def webhook_names(self) -> tuple[str, ...]:
        """Returns the names by which kube-apiserver calls the webhooks."""
        return self.tls_names or (f"slurm-extender.{self.namespace}.svc",)

    @property
    def drain_settings(self) -> DrainSettings:
        """Returns the settings for nodes that Slurm or Kubernetes takes out of service."""
        taints, conditions = frozenset(self.drain_taints), frozenset(self.drain_conditions)
        return DrainSettings(self.drain_nodes, taints, self.taint_nodes, conditions)

    @property
    def slurm_defaults(self) -> SlurmDefaults:
        """Returns the values for parameters of Slurm that slurmrestd does not report."""
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
        """Returns the range of ids for placeholders, independently of Slurm's MaxJobId."""
        return JobIdRange(self.job_id_first, self.job_id_end)

    def placement_config(self, cluster: str, kill_wait_s: int | None = None) -> PlacementConfig:
        """Returns the settings of the placement for this Kubernetes cluster. `kill_wait_s` is Slurm's
        KillWait; None if Slurm does not report KillWait."""
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
