"""Slurm's programs on a PATH for tests: slurmctld of a release, and scontrol of a cluster."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deploy.local.cluster import Cluster
from deploy.local.spec import ClusterSpec

_SLURMCTLD = """\
#!/bin/sh
# slurmctld of an unpacked release, which sees /tmp as this machine does.
exec unshare --mount --uts --propagation=private sh -c '
    hostname {host} &&
    mount --rbind /dev "$0/dev" && mount --bind /tmp "$0/tmp" && mount --bind "$1" "$0/etc/hosts" &&
    {{ [ -z "$2" ] || mount --bind "$2" "$0/etc/slurm"; }} && shift 2 && exec chroot "$0" "$@"
' '{tree}' '{hosts}' '{etc}' /usr/sbin/slurmctld "$@"
"""


_SCONTROL = """\
#!/bin/sh
# The tree has another root: a file of this machine is seen in its /tmp.
[ -z "$SLURM_CONF" ] && exec {directory}/bin/scontrol "$@"
cp "$SLURM_CONF" {directory}/slurm/tmp/slurm.conf
read -r pid _ < {directory}/init
exec nsenter --target "$pid" --mount --pid -- chroot {directory}/root \
    /usr/bin/env -i PATH=/usr/bin SLURM_CONF=/tmp/slurm.conf scontrol "$@"
"""


def tree_of(release: str) -> Path:
    """Returns the folder with the unpacked files of a release of Slurm. The files include slurmdbd's
    libraries."""
    spec = ClusterSpec(nodes=1, kubernetes=False, extender=False, accounting=True, release=release)
    return Cluster.prepare(spec)[0]


def put_slurmctld(folder: Path, tree: Path, etc: Path | str = "", host: str = "") -> Path:
    """Writes a program slurmctld into a folder, and returns the program's path. The program runs
    slurmctld of `tree`, which sees `etc` as /etc/slurm, and `host` as the name of the machine."""
    folder.mkdir(parents=True, exist_ok=True)
    host = host or socket.gethostname()
    hosts = folder / "hosts"
    hosts.write_text(f"127.0.0.1 localhost {host}\n")
    program = folder / "slurmctld"
    program.write_text(_SLURMCTLD.format(tree=tree, hosts=hosts, etc=etc, host=host))
    program.chmod(0o755)
    return program


def put_scontrol(folder: Path, cluster: Cluster) -> None:
    """Writes a program scontrol into a folder. The program runs the cluster's scontrol, and accepts
    another slurm.conf in the variable SLURM_CONF."""
    program = folder / "scontrol"
    program.write_text(_SCONTROL.format(directory=cluster.directory))
    program.chmod(0o755)


@contextmanager
def on_path(*folders: Path) -> Iterator[None]:
    """Puts these folders first on PATH, until the end of the block."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", os.pathsep.join([*map(str, folders), os.environ["PATH"]]))
        yield
