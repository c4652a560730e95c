"""What a spec amounts to: which ports, which files, which components in which order."""

import shutil
from pathlib import Path

from deploy.local.components import Component
from deploy.local.kubernetes_binaries import CONTROL_PLANE
from deploy.local.kubernetes_components import (
    control_components,
    extender_component,
    store_components,
)
from deploy.local.kubernetes_config import EXTENDER_LISTENERS, write_kubernetes_files
from deploy.local.layout import Layout, Record
from deploy.local.slurm_components import slurm_components
from deploy.local.slurm_config import write_clients, write_slurm_files
from deploy.local.spec import ClusterSpec


def port_names(spec: ClusterSpec) -> list[str]:
    """What the cluster needs a port for."""
    kubernetes = ["etcd", "etcd-peer", *CONTROL_PLANE, "kwok"] if spec.kubernetes else []
    extender = [f"extender-{name}" for name in EXTENDER_LISTENERS] if spec.extender else []
    slurmds = [f"slurmd-{name}" for name in spec.slurmd_names]
    return [*kubernetes, *extender, "slurmctld", "slurmrestd", *slurmds]


def prepare_directory(layout: Layout, record: Record) -> None:
    """The directory as if new, with everything in it that the components read."""
    if layout.directory.exists():
        shutil.rmtree(layout.directory)
    layout.logs.mkdir(parents=True)
    layout.directory.chmod(0o700)  # keys and tokens; what jobs need is mounted inside
    record.save(layout)
    write_slurm_files(record.spec, record.ports, layout)
    write_clients(layout)
    if record.spec.kubernetes:
        kubectl = Path(record.binaries["kubectl"])
        write_kubernetes_files(record.spec, record.ports, layout, kubectl)


def start_phases(layout: Layout, record: Record) -> list[list[Component]]:
    """The components in the order of their start; those of a phase start together."""
    spec, ports, binaries = record.spec, record.ports, record.binaries
    daemons = slurm_components(spec, ports, layout)
    if not spec.kubernetes:
        return [daemons]
    store = store_components(binaries, ports, layout)
    control = control_components(binaries, ports, layout)
    if spec.extender:
        control.append(extender_component(spec, ports, layout))
    return [[*store, *daemons], control]
