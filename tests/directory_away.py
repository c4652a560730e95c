"""An outage of the users' directory (sssd, LDAP), as the Slurm of a local cluster sees the outage."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from deploy.local.layout import Layout

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from deploy.local.cluster import Cluster

_MNT_DETACH = 2
# The test calls umount2 by ctypes: umount(8) needs /proc/self, and /proc in this mount namespace shows
# another PID namespace.
_UNMOUNT = (
    f"import ctypes, sys; sys.exit(ctypes.CDLL(None).umount2(sys.argv[1].encode(), {_MNT_DETACH}))"
)


@contextmanager
def directory_away(cluster: Cluster, users: Collection[str]) -> Iterator[None]:
    """Replaces /etc/passwd in Slurm's root, until the block ends, by a file without the users. So
    slurmctld, slurmrestd and slurmd cannot resolve these users."""
    layout = Layout(cluster.directory)
    init, passwd = layout.init.read_text().split()[0], layout.root / "etc/passwd"
    enter = ["nsenter", "--target", init, "--mount", "--"]
    whole = subprocess.run([*enter, "cat", passwd], capture_output=True, text=True, check=True).stdout
    left = [line for line in whole.splitlines() if line.split(":")[0] not in users]
    without = cluster.directory / "passwd-without-users"
    without.write_text("\n".join(left) + "\n")
    subprocess.run([*enter, "mount", "--bind", without, passwd], check=True)
    try:
        yield
    finally:
        subprocess.run([*enter, sys.executable, "-c", _UNMOUNT, passwd], check=True)
