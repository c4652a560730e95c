"""Runs slurmd of a release without a slurmctld: `slurmd -G` prints the devices of the node."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

from deploy.local.slurm.tree import slurm_tree
from deploy.local.spec import ClusterSpec

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_CONF = """\
ClusterName=c
SlurmctldHost=localhost
AuthType=auth/none
SlurmdSpoolDir=/run/slurmd
SlurmdPidFile=/run/slurmd/pid
PartitionName=main Nodes=n1 Default=YES
"""
# All runs share the tree of Slurm's files, so each run has its own /run, and its own /dev with unused
# devices.
_SCRIPT = """
mount --bind "$1" "$0/run" && mkdir "$0/run/slurmd" && mount -t tmpfs none "$0/dev" || exit
for n in 0 1 2 3 4; do mknod "$0/dev/d$n" c 60 $n || exit; done
mknod "$0/dev/null" c 1 3 && cd / && shift 1 && exec chroot "$0" /usr/sbin/slurmd -G -N n1 "$@" 2>&1
"""


def slurmd_prints(
    release: str,
    folder: Path,
    conf: str,
    *options: str,
    gres: str = "",
    environment: Mapping[str, str] | None = None,
) -> str:
    """Returns slurmd's output. `conf` is a part of slurm.conf with node n1. `folder` becomes slurmd's
    /run."""
    (folder / "slurm.conf").write_text(f"{conf}\n{_CONF}")
    (folder / "gres.conf").write_text(gres)
    (folder / "cgroup.conf").write_text("CgroupPlugin=disabled\n")
    tree = slurm_tree(ClusterSpec(release=release), lambda *_: None, print)
    argv = ["sh", "-c", _SCRIPT, str(tree), str(folder), "-f", "/run/slurm.conf", *options]
    done = subprocess.run(
        ["unshare", "--mount", *argv],
        env=os.environ | (environment or {}),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    return done.stdout
