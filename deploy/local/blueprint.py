"""Derives from a spec the ports and files of a cluster, and the start order of the components."""

import shutil
from dataclasses import dataclass, field
from pathlib import Path

from deploy.local.components import Component
from deploy.local.guest.image import GuestImage
from deploy.local.guest.machine import PORTS, guest_component
from deploy.local.guest.nodes import (
    containerd,
    gateway,
    guest_kubelet,
    guest_slurmd,
    node_agent,
    write_guest_files,
)
from deploy.local.guest.services import services_components, write_services_files
from deploy.local.kubernetes.components import (
    control_components,
    extender_components,
    store_components,
    write_extender_program,
)
from deploy.local.kubernetes.config import EXTENDER_LISTENERS, write_kubernetes_files
from deploy.local.layout import Layout, Record
from deploy.local.links import link_components, link_port_names
from deploy.local.slurm.components import accounting_components, dynamic_components, slurm_components
from deploy.local.slurm.config import share_slurm, write_clients, write_slurm_files
from deploy.local.spec import ClusterSpec


def port_names(spec: ClusterSpec) -> list[str]:
    """Returns the names of the ports that the cluster needs, for example "etcd-peer"."""
    plane = ["etcd", "etcd-peer", "kube-apiserver", "kube-controller-manager", "kwok"]
    kubernetes = [*plane, *spec.scheduler_names, *spec.other_scheduler_names] if spec.kubernetes else []
    extender = [f"{name}-{listener}" for name in spec.extender_names for listener in EXTENDER_LISTENERS]
    slurm = _slurm(spec) if spec.own_slurm else []
    return [*kubernetes, *extender, *link_port_names(spec), *slurm, *(PORTS if spec.guest else ())]


def _slurm(spec: ClusterSpec) -> list[str]:
    database = ["slurmdbd"] if spec.accounting else []
    names = (*spec.slurmd_names, *spec.dynamic_names)
    return ["slurmctld", "slurmrestd", *database, *(f"slurmd-{name}" for name in names)]


def shared_ports(spec: ClusterSpec) -> dict[str, int]:
    """Returns the ports of the Slurm that this cluster shares with another cluster. Without a shared
    Slurm, returns no ports."""
    if not spec.slurm_of:
        return {}
    other = Record.load(Layout(Path(spec.slurm_of)))
    return {name: other.ports[name] for name in _slurm(other.spec)}


def prepare_directory(layout: Layout, record: Record) -> None:
    """Recreates the directory, with every file for the components."""
    if layout.directory.exists():
        shutil.rmtree(layout.directory)
    layout.logs.mkdir(parents=True)
    layout.directory.chmod(0o700)  # has keys and tokens; jobs see their files by mounts
    record.save(layout)
    if record.spec.slurm_of:
        share_slurm(record.spec, record.ports, layout)
    elif record.spec.slurm:
        write_slurm_files(record.spec, record.ports, layout, Path(record.tree))
        write_clients(record.spec, layout)
    if record.spec.kubernetes:
        write_kubernetes_files(record.spec, record.ports, layout, record.binaries)
    if record.spec.extender:
        write_extender_program(record.spec, record.ports, layout)
    if record.spec.guest:
        write_guest_files(record.spec, record.ports, layout)
    if record.spec.services:
        write_services_files(record.ports, layout)


@dataclass(frozen=True, slots=True)
class StartPlan:
    """The components in phases. The components of a phase start together. They start after all
    components of the previous phase serve."""

    first: list[list[Component]]
    """After these phases, Slurm's nodes can register, and Kubernetes accepts objects."""
    then: list[list[Component]]
    """These phases need Slurm's nodes, and the first objects in Kubernetes."""
    on_request: list[Component] = field(default_factory=list)

    @property
    def components(self) -> dict[str, Component]:
        phases = (*self.first, *self.then, self.on_request)
        return {each.name: each for phase in phases for each in phase}


def start_plan(layout: Layout, record: Record) -> StartPlan:
    spec, ports, binaries = record.spec, record.ports, record.binaries
    own = spec.own_slurm
    accounting = [[each] for each in accounting_components(spec, ports, layout)] if own else []
    daemons = slurm_components(spec, ports, layout) if own else []
    dynamic = dynamic_components(spec, ports, layout) if own else []
    if not spec.kubernetes:
        return StartPlan([*accounting, daemons], [], dynamic)
    store = [*store_components(spec, binaries, ports, layout), *link_components(spec, ports, layout)]
    control = control_components(spec, binaries, ports, layout)
    plan = StartPlan(
        [*accounting, [*store, *daemons]],
        [[*control, *extender_components(spec, ports, layout)]],
        dynamic,
    )
    return _with_guest(plan, layout, record) if spec.guest else plan


def _with_guest(plan: StartPlan, layout: Layout, record: Record) -> StartPlan:
    """Returns the plan with the guest added. The guest boots while the host's programs start. The
    guest's own programs start as early as possible."""
    spec, image, ports = record.spec, GuestImage(**record.guest), record.ports
    *before, host = plan.first
    (control,) = plan.then
    booting = [*host, guest_component(spec, image, ports, layout)]
    slurmd = [] if spec.guest_in_pool else [guest_slurmd(spec, ports, layout)]
    network = [gateway(spec, ports, layout)] if spec.in_pods else []
    node = [guest_kubelet(ports, layout)]
    node += services_components(ports, layout) if spec.services else []  # kube-proxy waits for the Node
    agent = [] if spec.in_pods else [[node_agent(spec, ports, layout)]]
    return StartPlan(
        [*before, booting, [*slurmd, *network, containerd(ports, layout)]],
        [control, node, *agent],
        plan.on_request,
    )
