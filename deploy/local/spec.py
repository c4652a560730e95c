"""What a caller may choose about a cluster, and the names that follow from it."""

import os
from dataclasses import dataclass, field
from typing import Final

# Slurm release -> the Debian suite whose packages hold it.
DEBIAN_SUITES: Final = {"26.05": "forky", "24.11": "trixie"}
DEFAULT_RELEASE: Final = "26.05"

# Those that can be built here: the newest that is supported, and the oldest.
KUBERNETES_RELEASES: Final = ("1.37", "1.31")

# State=EXTERNAL came with 25.11.
_WITH_EXTERNAL_NODES: Final = frozenset({"26.05"})

# A slurmd that exists only so that signals to EXTERNAL nodes, which share its address, get an answer.
SIGNAL_RELAY: Final = "signal-relay"

# The virtual machine's name in both systems, and its size. Its memory is more, for what is no job's.
GUEST: Final = "guest"
GUEST_CPUS: Final = 4
GUEST_MEMORY_MB: Final = 2000
GUEST_GPUS: Final = 8
CGROUP_DRIVERS: Final = ("cgroupfs", "systemd")

# kube-scheduler's, and the API server's about new Pods.
ADMISSION_VERBS: Final = ("mutate", "validate")
EXTENDER_VERBS: Final = ("filter", "bind", "preempt", *ADMISSION_VERBS)


class SpecError(ValueError):
    """No cluster can be like that; the words say what to choose instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec:
    """A cluster's size and shape. Memory is in MB as Slurm counts it, times are in seconds.

    `nodes` have a slurmd each and run native jobs. `external_nodes` have none (State=EXTERNAL, which
    24.11 lacks), and are for scale. Both have a Kubernetes Node of the same name and size.
    `kill_wait` exceeds the default grace of Pods, 30 s: Slurm keeps a node while a Pod may use it.
    `release`, of Slurm, is one of DEBIAN_SUITES. `kubernetes_release` is one of KUBERNETES_RELEASES, by
    default KUBERNETES_RELEASE in the environment. If it is "", this machine's own control plane is used
    if it is a supported one, else the newest.

    `cpus_per_node` are logical CPUs, `threads_per_core` of them to a core, and what Kubernetes counts.
    `slurm_cpus_per_node` is what Slurm's nodes declare instead: the number of cores, or parts of CPUs.

    `replicas` pairs of extender and kube-scheduler run side by side, behind a stand-in for a Service
    that admission asks. With `links`, the extenders' calls go through a proxy that can fail
    (`Cluster.disturb`). With `accounting`, slurmdbd and MariaDB run as well, and Slurm enforces
    associations, limits and QOS: at first only root may run jobs, under the account root.

    With `guest`, one more node, of that name, is a virtual machine with a real kubelet, containerd,
    slurmd and node agent on cgroup v2 (deploy/local/guest). It has a size of its own.

    Several Kubernetes clusters may share the Slurm of the first one: others name the first one's
    directory as `slurm_of`, say the same of Slurm, and have other `kubernetes_nodes`.
    """

    nodes: int = 4
    external_nodes: int = 0
    guest: bool = False
    guest_cgroups: str = CGROUP_DRIVERS[0]
    """The guest's driver of cgroups, one of CGROUP_DRIVERS: with systemd that is its first process."""
    cpus_per_node: int = 8
    threads_per_core: int = 1
    slurm_cpus_per_node: int = 0
    memory_mb: int = 16_000
    gpus_per_node: int = 4
    shared_gres: tuple[tuple[str, int], ...] = ()
    """Parts of a node's GPUs (`shard`, `mps`), and the count of each: extended resources."""
    kubernetes: bool = True
    kubernetes_nodes: tuple[str, ...] = ()
    """Which of Slurm's nodes have a Node; none: all."""
    slurm_of: str = ""
    """The directory of the cluster whose Slurm this one shares, which must be up; "": it has its own.
    That Slurm pushes to, and its gate asks, this one's extenders too, also when they are down again."""
    kubernetes_release: str = field(default_factory=lambda: os.environ.get("KUBERNETES_RELEASE", ""))
    extender: bool = True
    replicas: int = 1
    links: bool = False
    kill_wait: int = 40
    accounting: bool = False
    release: str = DEFAULT_RELEASE
    dynamic_nodes: int = 0
    """How many nodes there may be besides, which no file names: `Cluster.register` starts their slurmds.
    Those with the feature `dynamic` are in the partition of that name."""
    hooks: tuple[str, ...] = ("EpilogSlurmctld",)
    """The parameters of slurm.conf under which slurmctld pushes to the extender. PrologSlurmctld is one
    more: it tells of starts, and keeps every job in CONFIGURING for some 15 ms."""
    gate: bool = False
    """The nodes' Prolog waits for Pods whose jobs have ended (deploy/slurm/slurm-extender-gate)."""
    slurm_conf: tuple[str, ...] = ()
    """More lines for slurm.conf; one that names a parameter of ours replaces it."""
    scheduler_parameters: tuple[str, ...] = ()
    """More of slurm.conf's SchedulerParameters."""
    job_submit_lua: str = ""
    """The text of job_submit.lua, which slurmctld asks about every submission (JobSubmitPlugins=lua); it
    reads the file again when it changes (`Cluster.job_submit_lua`). None: no plugin."""
    feature_gates: tuple[str, ...] = ()
    """Kubernetes' feature gates that are on besides its defaults; with any, beta APIs are served too."""
    percentage_of_nodes_to_score: int = 100
    """kube-scheduler's setting of that name; ours needs 100. 0: it samples Nodes by its own default."""
    default_preemption: bool = False
    """Our profile of kube-scheduler has DefaultPreemption on, as any has that says nothing of it."""
    own_scheduler: bool = False
    """The kube-schedulers beside the extenders have Slurm's Pods alone; one more, `default-scheduler`,
    has all others and asks no extender."""
    ignorable: bool = False
    """The kube-scheduler that has others' Pods goes on where an extender fails, and with `own_scheduler`
    asks one after all, for /filter."""
    validates_pods: bool = False
    """/validate is asked about Pods too, as after /mutate where others change them."""
    namespaces: tuple[str, ...] = ()
    """Whose Pods the extender looks at; none: everybody's."""
    pod_labels: tuple[tuple[str, str], ...] = ()
    """Keys and values of the labels that those Pods must have."""
    self_signed: bool = False
    """The extenders keep the webhooks' certificate by themselves."""
    client_certificates: bool = False
    """The extenders are called by nobody but who shows a certificate, as kube-scheduler and
    kube-apiserver do then."""
    extender_settings: tuple[tuple[str, str], ...] = ()
    """More settings of the extenders, or others: names without SLURM_EXTENDER_, and values."""
    policy: str = ""
    """Who may ask for what at first (docs/policy.md); blank: everybody for anything."""
    pools: str = ""
    """The pools of slurmd Pods at first (docs/pools.md); blank: none, ever."""
    guest_in_pool: bool = False
    """The guest's slurmd runs in a Pod of a pool: no file of Slurm's has its node, and no other node."""
    guest_nri: bool = False
    """With Slurm 24.11, the guest has the containerd of the newest Debian, which asks NRI plugins."""
    guest_memory_mb: int = 3072
    """What the guest has; Slurm counts less of it, where its node is in slurm.conf."""
    guest_images: tuple[str, ...] = ()
    """The files (OCI archives) of the container images that the guest has from the start."""
    in_pods: bool = False
    """The extender, its kube-scheduler and the node agent are to be Pods of the guest, which the caller
    makes: Kubernetes has what that takes (ServiceAccounts, Services' endpoints, a way to Pods), and runs
    none of the three by itself."""
    services: bool = False
    """Services have addresses and names in the guest, by kube-proxy and CoreDNS."""
    slurm: bool = True
    """There is a Slurm on the host. Without one Pods of the guest are Slurm, which the caller makes."""
    extender_argv: tuple[str, ...] = ()
    """What to start instead of the extender of this checkout (tests wrap it)."""
    extender_verbs: tuple[str, ...] = EXTENDER_VERBS
    """What it is asked; any of EXTENDER_VERBS."""

    def __post_init__(self) -> None:
        if self.release not in DEBIAN_SUITES:
            raise SpecError(f"Slurm {self.release}: known are {', '.join(DEBIAN_SUITES)}")
        if self.kubernetes_release not in ("", *KUBERNETES_RELEASES):
            known = " and ".join(KUBERNETES_RELEASES)
            raise SpecError(f"Kubernetes {self.kubernetes_release}: {known} are built here")
        if self.external_nodes and self.release not in _WITH_EXTERNAL_NODES:
            raise SpecError(f"Slurm {self.release} has no EXTERNAL nodes: give external_nodes=0")
        if self.nodes + self.external_nodes + self.guest < 1:
            raise SpecError("a cluster needs at least one node")
        if self.threads_per_core < 1 or self.cpus_per_node % self.threads_per_core:
            raise SpecError(
                f"{self.cpus_per_node} CPUs are no whole cores of {self.threads_per_core} threads"
            )
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
            raise SpecError("Pods are of the guest: give guest and own_scheduler, and extender=False")
        if self.services and not self.in_pods:
            raise SpecError("Services are for Pods of the guest: give in_pods")
        if not (self.slurm or self.services):
            raise SpecError("Slurm's Pods find each other by Services: give services")
        if self.extender and not self.kubernetes:
            raise SpecError("the extender needs Kubernetes: give extender=False as well")
        if unknown := set(self.kubernetes_nodes) - {*self.node_names, *self.external_names}:
            raise SpecError(f"no node of Slurm's is called {', '.join(sorted(unknown))}")
        if self.replicas < 1 or (self.replicas > 1 and not self.extender):
            raise SpecError("replicas are of the extender: give replicas=1 where there is none")
        if self.slurm_of and not self.extender:
            raise SpecError(
                "a cluster without a Slurm of its own is for an extender: give extender=True"
            )

    @property
    def own_slurm(self) -> bool:
        """Whether the cluster brings a Slurm up: it shares no other's, and has none in Pods."""
        return self.slurm and not self.slurm_of

    @property
    def slurm_cpus(self) -> int:
        """How many CPUs Slurm's nodes declare."""
        return self.slurm_cpus_per_node or self.cpus_per_node

    @property
    def slurm_size(self) -> str:
        """What Slurm's nodes declare. Parts of CPUs are declared as cores of one thread each."""
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
        """What Slurm's nodes declare of devices, as in slurm.conf; "" where they have none."""
        gpus = [f"gpu:h100:{self.gpus_per_node}"] if self.gpus_per_node else []
        return ",".join([*gpus, *(f"{name}:{count}" for name, count in self.shared_gres)])

    @property
    def preempt_type(self) -> str:
        """Slurm's PreemptType."""
        given = (line.split("=", 1) for line in self.slurm_conf)
        told = (value for name, value in given if name.strip().lower() == "preempttype")
        return next(told, "preempt/none")

    @property
    def pushes(self) -> tuple[str, ...]:
        """`hooks`, where there is an extender to push to."""
        return self.hooks if self.extender else ()

    @property
    def node_names(self) -> list[str]:
        """The nodes that have a slurmd and run jobs."""
        return [f"node-{number}" for number in range(1, self.nodes + 1)]

    @property
    def dynamic_names(self) -> list[str]:
        return [f"dynamic-{number}" for number in range(1, self.dynamic_nodes + 1)]

    @property
    def external_names(self) -> list[str]:
        return [f"external-{number}" for number in range(1, self.external_nodes + 1)]

    @property
    def kubernetes_node_names(self) -> list[str]:
        """The Kubernetes Nodes."""
        names = [*self.node_names, *self.external_names, *self.dynamic_names]
        return [name for name in names if not self.kubernetes_nodes or name in self.kubernetes_nodes]

    @property
    def extender_names(self) -> list[str]:
        return _numbered("extender", self.replicas) if self.extender else []

    @property
    def scheduler_names(self) -> list[str]:
        """Each stands beside the extender of the same number."""
        return [] if self.in_pods else _numbered("kube-scheduler", self.replicas)

    @property
    def other_scheduler_names(self) -> list[str]:
        """The kube-scheduler of others' Pods, where they have one of their own."""
        return ["default-scheduler"] if self.own_scheduler else []

    @property
    def guest_has_nri(self) -> bool:
        """Returns True if the guest's containerd asks NRI plugins: containerd 1.7 does not."""
        return self.release != "24.11" or self.guest_nri

    @property
    def guest_names(self) -> list[str]:
        """The guest, if slurm.conf has one."""
        return [GUEST] if self.guest and not self.guest_in_pool else []

    @property
    def configless(self) -> bool:
        """Whether slurmds register themselves, and slurmctld gives them their configuration."""
        return bool(self.dynamic_nodes or self.guest_in_pool)

    @property
    def guest_size(self) -> str:
        """What Slurm's node of that name declares."""
        return (
            f"CPUs={GUEST_CPUS} Sockets=1 CoresPerSocket={GUEST_CPUS} ThreadsPerCore=1"
            f" RealMemory={GUEST_MEMORY_MB} Gres=gpu:h100:{GUEST_GPUS}"
        )

    @property
    def slurmd_names(self) -> list[str]:
        """Every name in slurm.conf that a slurmd of this machine runs under, the relay's included; the
        guest's is there."""
        return self.node_names or ([] if self.guest else [SIGNAL_RELAY])


def _numbered(name: str, count: int) -> list[str]:
    """The first goes without a number."""
    return [name, *(f"{name}-{number}" for number in range(2, count + 1))]
