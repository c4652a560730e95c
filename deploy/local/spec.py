"""The options of a cluster, and the names of nodes and programs that follow from the options."""

import os
from dataclasses import dataclass, field
from typing import Final

# Slurm release -> the Debian suite with its packages.
DEBIAN_SUITES: Final = {"26.05": "forky", "24.11": "trixie"}
DEFAULT_RELEASE: Final = "26.05"

# The Kubernetes releases that can be built here: the newest and the oldest supported.
KUBERNETES_RELEASES: Final = ("1.37", "1.31")

# Slurm 25.11 introduced State=EXTERNAL.
_WITH_EXTERNAL_NODES: Final = frozenset({"26.05"})

# An additional slurmd, which answers the signals that Slurm sends to EXTERNAL nodes. This slurmd has the
# same address as these nodes.
SIGNAL_RELAY: Final = "signal-relay"

# The virtual machine's name in Slurm and in Kubernetes, and the size of its node for jobs. The machine
# has more memory than its node, because the system's programs also need memory.
GUEST: Final = "guest"
GUEST_CPUS: Final = 4
GUEST_MEMORY_MB: Final = 2000
GUEST_GPUS: Final = 8
CGROUP_DRIVERS: Final = ("cgroupfs", "systemd")

# Verbs of the extender. The API server calls mutate and validate (admission reviews), and kube-scheduler
# calls the other verbs.
ADMISSION_VERBS: Final = ("mutate", "validate")
EXTENDER_VERBS: Final = ("filter", "bind", "preempt", *ADMISSION_VERBS)


class SpecError(ValueError):
    """The spec describes an impossible cluster. The message names the options to change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec:
    """Size and shape of a cluster. Memory is in MB as Slurm counts, times are in seconds.

    Nodes:

    * `nodes` is the number of nodes with a slurmd each, which run native jobs. `external_nodes` is the
      number of nodes without a slurmd, for tests of scale (State=EXTERNAL, absent in 24.11). Each node
      of both kinds has a Kubernetes Node of the same name and size.
    * `cpus_per_node` is the number of logical CPUs, and the CPU capacity in Kubernetes. Each core
      has `threads_per_core` logical CPUs.
    * `slurm_cpus_per_node` overrides the number of CPUs that a node has in Slurm. This number may be the
      number of cores, or a larger number if Slurm counts parts of CPUs.
    * With `guest`, a further node, named guest, is a virtual machine with a real kubelet,
      containerd, slurmd and node agent on cgroup v2 (deploy/local/guest). The guest's size does not
      depend on the values above.

    Programs:

    * `release` is Slurm's release, listed in DEBIAN_SUITES.
    * `kubernetes_release` is listed in KUBERNETES_RELEASES. The default is KUBERNETES_RELEASE in
      the environment. "" means this machine's own control plane if supported, else the newest
      release.
    * `replicas` is the number of extenders, each with a kube-scheduler beside it. With more than one,
      kube-apiserver sends admission requests to a stand-in for a Service in front of the extenders.
    * With `links`, the extenders' calls go through a proxy with simulated faults
      (`Cluster.disturb`).
    * With `accounting`, slurmdbd and MariaDB also run, and Slurm enforces associations, limits and
      QOS. At first only root may run jobs, under the account root.
    * `kill_wait` is Slurm's KillWait. The default is longer than the default grace period of Pods
      (30 s), because Slurm must keep the node during the grace period.

    Several Kubernetes clusters may share the Slurm of the first cluster. Each further cluster has
    the directory of the first as `slurm_of`, the same settings of Slurm, and other
    `kubernetes_nodes`.
    """

    nodes: int = 4
    external_nodes: int = 0
    guest: bool = False
    guest_cgroups: str = CGROUP_DRIVERS[0]
    """The guest's cgroup driver, from CGROUP_DRIVERS. With systemd, systemd is the guest's first
    process."""
    cpus_per_node: int = 8
    threads_per_core: int = 1
    slurm_cpus_per_node: int = 0
    memory_mb: int = 16_000
    gpus_per_node: int = 4
    shared_gres: tuple[tuple[str, int], ...] = ()
    """Parts of a node's GPUs (`shard`, `mps`), with the count of each. In Kubernetes, the parts are
    extended resources."""
    kubernetes: bool = True
    kubernetes_nodes: tuple[str, ...] = ()
    """Slurm nodes with a Kubernetes Node. Empty: all."""
    slurm_of: str = ""
    """Directory of another running cluster, whose Slurm this cluster shares. "" means that the cluster
    has a separate Slurm. The shared Slurm's hook script also reports jobs to this cluster's extenders,
    and the shared Slurm's gate also asks these extenders. Both scripts still call these extenders after
    this cluster has stopped."""
    kubernetes_release: str = field(default_factory=lambda: os.environ.get("KUBERNETES_RELEASE", ""))
    extender: bool = True
    replicas: int = 1
    links: bool = False
    kill_wait: int = 40
    accounting: bool = False
    release: str = DEFAULT_RELEASE
    dynamic_nodes: int = 0
    """Maximum number of further nodes that no file of Slurm names. `Cluster.register` starts the slurmd
    of such a node. Nodes with the feature `dynamic` are in the partition `dynamic`."""
    hooks: tuple[str, ...] = ("EpilogSlurmctld",)
    """Parameters of slurm.conf that run the hook script, which reports jobs to the extender. With
    EpilogSlurmctld, the script reports ended jobs. With PrologSlurmctld, the script also reports
    started jobs, and keeps every job in CONFIGURING for about 15 ms."""
    gate: bool = False
    """If True, each node's Prolog waits until the Pods of ended jobs have left the node
    (deploy/slurm/slurm-extender-gate)."""
    slurm_conf: tuple[str, ...] = ()
    """Further lines for slurm.conf. A line replaces the generated line with the same parameter."""
    scheduler_parameters: tuple[str, ...] = ()
    """Further items of slurm.conf's SchedulerParameters."""
    job_submit_lua: str = ""
    """Text of job_submit.lua. slurmctld runs the script for every submission (JobSubmitPlugins=lua), and
    reads the file again after a change (`Cluster.job_submit_lua`). Blank: no plugin."""
    feature_gates: tuple[str, ...] = ()
    """Kubernetes feature gates to enable, in addition to Kubernetes' defaults. If the tuple is not
    empty, kube-apiserver also serves beta APIs."""
    percentage_of_nodes_to_score: int = 100
    """kube-scheduler's setting percentageOfNodesToScore. The extender needs 100. With 0,
    kube-scheduler uses its default, a sample of the Nodes."""
    default_preemption: bool = False
    """If True, the plugin DefaultPreemption is on in kube-scheduler's profile for the extender. Such a
    profile does not mention the plugin, and Kubernetes' default is on."""
    own_scheduler: bool = False
    """If True, the kube-schedulers beside the extenders schedule only managed Pods. A further
    kube-scheduler, `default-scheduler`, schedules all other Pods and calls no extender, unless
    `ignorable`."""
    ignorable: bool = False
    """If True, the kube-scheduler of unmanaged Pods continues without the extender if the extender
    fails. With `own_scheduler`, `default-scheduler` then calls an extender for /filter and /preempt."""
    validates_pods: bool = False
    """If True, kube-apiserver also sends Pods to /validate. This is necessary if other webhooks change
    Pods after /mutate."""
    namespaces: tuple[str, ...] = ()
    """Namespaces of managed Pods. Empty: all namespaces."""
    pod_labels: tuple[tuple[str, str], ...] = ()
    """Labels (key, value) that a managed Pod must have."""
    self_signed: bool = False
    """If True, the extenders create and renew the webhooks' certificate."""
    client_certificates: bool = False
    """If True, the extenders accept only callers with a client certificate, and kube-scheduler and
    kube-apiserver have client certificates."""
    extender_settings: tuple[tuple[str, str], ...] = ()
    """Further settings of the extenders, which override the generated settings: names without
    SLURM_EXTENDER_, and values."""
    policy: str = ""
    """The initial policy (docs/concepts/policy.md): permissions of Pods in Slurm. Blank: all Pods may
    request anything."""
    pools: str = ""
    """The initial pools of slurmd Pods (docs/concepts/pools.md). Blank: the cluster never has pools."""
    guest_in_pool: bool = False
    """If True, the guest's slurmd runs in a Pod of a pool. No file of Slurm names the guest's node, and
    Slurm has no other node."""
    guest_nri: bool = False
    """If True, a guest with Slurm 24.11 has the containerd of the newest Debian suite, because this
    containerd calls NRI plugins."""
    guest_memory_mb: int = 3072
    """Memory of the guest in MB. If slurm.conf has the guest's node, the node has less memory for jobs
    (GUEST_MEMORY_MB)."""
    guest_images: tuple[str, ...] = ()
    """Files (OCI archives) with the container images that the guest has from the start."""
    in_pods: bool = False
    """If True, the caller creates the extender, its kube-scheduler and the node agent as Pods of the
    guest, and the cluster starts none of these three programs. The cluster has what these Pods need:
    ServiceAccounts, Services' endpoints, and a route to Pods."""
    services: bool = False
    """If True, Services have addresses and names in the guest, from kube-proxy and CoreDNS."""
    slurm: bool = True
    """If True, the cluster has a Slurm on the host. If False, the caller runs Slurm as Pods of the
    guest."""
    extender_argv: tuple[str, ...] = ()
    """Command line to start instead of this checkout's extender (tests wrap the extender)."""
    extender_verbs: tuple[str, ...] = EXTENDER_VERBS
    """Verbs with which kube-scheduler and kube-apiserver call the extender: a subset of
    EXTENDER_VERBS."""

    def __post_init__(self) -> None:
        if self.release not in DEBIAN_SUITES:
            known = " or ".join(DEBIAN_SUITES)
            raise SpecError(f"Slurm {self.release} is unknown: choose {known}")
        if self.kubernetes_release not in ("", *KUBERNETES_RELEASES):
            known = " or ".join(KUBERNETES_RELEASES)
            raise SpecError(f"Kubernetes {self.kubernetes_release} cannot be built: choose {known}")
        if self.external_nodes and self.release not in _WITH_EXTERNAL_NODES:
            raise SpecError(f"Slurm {self.release} has no EXTERNAL nodes: give external_nodes=0")
        if self.nodes + self.external_nodes + self.guest < 1:
            raise SpecError("a cluster needs at least one node")
        if self.threads_per_core < 1 or self.cpus_per_node % self.threads_per_core:
            cpus, threads = self.cpus_per_node, self.threads_per_core
            raise SpecError(f"{cpus} CPUs are not a multiple of {threads} threads per core")
        self._check_kubernetes()
        if self.guest:
            self._check_guest()

    def _check_guest(self) -> None:
        if not self.kubernetes or self.slurm_of:
            raise SpecError("the guest is a node of both systems: give kubernetes=True, and no slurm_of")
        if self.kubernetes_release not in ("", KUBERNETES_RELEASES[0]):
            raise SpecError(f"the guest's kubelet is of Kubernetes {KUBERNETES_RELEASES[0]}")
        if self.guest_cgroups not in CGROUP_DRIVERS:
            raise SpecError(f"guest_cgroups is one of {', '.join(CGROUP_DRIVERS)}")
        if self.gate and not self.guest_in_pool:
            raise SpecError("the guest's Prolog does not find the extender: give gate=False")
        if self.guest_in_pool and (not (self.pools or self.in_pods) or self.nodes or self.dynamic_nodes):
            raise SpecError("a guest in a pool is Slurm's only node: give pools, and nodes=0")

    def _check_kubernetes(self) -> None:
        if self.in_pods and (self.extender or not (self.guest and self.own_scheduler)):
            raise SpecError("in_pods needs a guest: give guest and own_scheduler, and extender=False")
        if self.services and not self.in_pods:
            raise SpecError("Services need Pods of the guest: give in_pods")
        if not (self.slurm or self.services):
            raise SpecError("Slurm's Pods need Services: give services")
        if self.extender and not self.kubernetes:
            raise SpecError("the extender needs Kubernetes: give extender=False as well")
        if unknown := set(self.kubernetes_nodes) - {*self.node_names, *self.external_names}:
            raise SpecError(f"Slurm has no node named {', '.join(sorted(unknown))}")
        if self.replicas < 1 or (self.replicas > 1 and not self.extender):
            raise SpecError("replicas need the extender: give replicas=1 without the extender")
        if self.slurm_of and not self.extender:
            raise SpecError("a shared Slurm needs an extender: give extender=True")

    @property
    def own_slurm(self) -> bool:
        """True if the cluster starts a Slurm on the host. False for a shared Slurm, and for a Slurm in
        Pods."""
        return self.slurm and not self.slurm_of

    @property
    def slurm_cpus(self) -> int:
        """Number of CPUs that slurm.conf declares for each node."""
        return self.slurm_cpus_per_node or self.cpus_per_node

    @property
    def slurm_size(self) -> str:
        """Size that slurm.conf declares for each node. If `slurm_cpus_per_node` counts parts of CPUs,
        each part is declared as a core with one thread."""
        cpus, threads = self.slurm_cpus, self.threads_per_core
        cores = self.cpus_per_node // threads
        if cpus not in (self.cpus_per_node, cores):
            cores, threads = cpus, 1
        return (
            f"CPUs={cpus} Sockets=1 CoresPerSocket={cores} ThreadsPerCore={threads}"
            f" RealMemory={self.memory_mb}"
        )

    @property
    def gres(self) -> str:
        """Devices that slurm.conf declares for each node. "" means no devices."""
        gpus = [f"gpu:h100:{self.gpus_per_node}"] if self.gpus_per_node else []
        return ",".join([*gpus, *(f"{name}:{count}" for name, count in self.shared_gres)])

    @property
    def preempt_type(self) -> str:
        """Slurm's PreemptType."""
        given = (line.split("=", 1) for line in self.slurm_conf)
        values = (value for name, value in given if name.strip().lower() == "preempttype")
        return next(values, "preempt/none")

    @property
    def pushes(self) -> tuple[str, ...]:
        """`hooks` if the cluster has an extender, else empty."""
        return self.hooks if self.extender else ()

    @property
    def node_names(self) -> list[str]:
        """Names of the nodes that have a slurmd and run native jobs."""
        return [f"node-{number}" for number in range(1, self.nodes + 1)]

    @property
    def dynamic_names(self) -> list[str]:
        return [f"dynamic-{number}" for number in range(1, self.dynamic_nodes + 1)]

    @property
    def external_names(self) -> list[str]:
        return [f"external-{number}" for number in range(1, self.external_nodes + 1)]

    @property
    def kubernetes_node_names(self) -> list[str]:
        """The names of the Kubernetes Nodes."""
        names = [*self.node_names, *self.external_names, *self.dynamic_names]
        return [name for name in names if not self.kubernetes_nodes or name in self.kubernetes_nodes]

    @property
    def extender_names(self) -> list[str]:
        return _numbered("extender", self.replicas) if self.extender else []

    @property
    def scheduler_names(self) -> list[str]:
        """Names of the kube-schedulers: one beside each extender, in the order of `extender_names`.
        Without an extender, one kube-scheduler runs alone."""
        return [] if self.in_pods else _numbered("kube-scheduler", self.replicas)

    @property
    def other_scheduler_names(self) -> list[str]:
        """Name of the kube-scheduler of unmanaged Pods. Empty without `own_scheduler`."""
        return ["default-scheduler"] if self.own_scheduler else []

    @property
    def guest_has_nri(self) -> bool:
        """True if the guest's containerd calls NRI plugins. containerd 1.7 does not."""
        return self.release != "24.11" or self.guest_nri

    @property
    def guest_names(self) -> list[str]:
        """Name of the guest's node. Empty if slurm.conf does not contain this node."""
        return [GUEST] if self.guest and not self.guest_in_pool else []

    @property
    def configless(self) -> bool:
        """True if slurmds register themselves, and receive their configuration from slurmctld."""
        return bool(self.dynamic_nodes or self.guest_in_pool)

    @property
    def guest_size(self) -> str:
        """Size that Slurm's configuration declares for the guest's node."""
        return (
            f"CPUs={GUEST_CPUS} Sockets=1 CoresPerSocket={GUEST_CPUS} ThreadsPerCore=1"
            f" RealMemory={GUEST_MEMORY_MB} Gres=gpu:h100:{GUEST_GPUS}"
        )

    @property
    def slurmd_names(self) -> list[str]:
        """Names in slurm.conf of the slurmds on this machine: the nodes, or SIGNAL_RELAY if there are
        none. The guest's slurmd is not among them."""
        return self.node_names or ([] if self.guest else [SIGNAL_RELAY])


def _numbered(name: str, count: int) -> list[str]:
    """Returns `count` names: `name` itself, and then `name` with the numbers from 2."""
    return [name, *(f"{name}-{number}" for number in range(2, count + 1))]
