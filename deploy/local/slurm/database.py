"""MariaDB for slurmdbd: its system tables, made once with the tree, and a cluster's own copy of them.

It listens on a socket only, and lets in nobody but SlurmUser, whose process's user the kernel tells it.
Like slurmdbd it runs as SlurmUser. Nothing of it is meant to outlive the cluster: it does not flush.
"""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

from deploy.local.errors import ClusterError
from deploy.local.users import SLURM_UID

# mariadb-server without -core brings Perl, a client and the scripts that run it as a service.
PACKAGES: Final = ("mariadb-server-core", "slurm-wlm-mysql-plugin", "slurmdbd")

# Debian suites whose libmariadb is tried, in this order, where slurmdbd does not work with its own.
# 3.4.10, forky's and trixie's in November 2026, refuses every result (error 5027); bookworm's works.
CLIENT_LIBRARIES: Final = ("trixie", "bookworm")

TEMPLATE: Final = "usr/share/slurm-extender-database"

# Small files: they are copied for each cluster.
_INNODB: Final = ("--innodb-log-file-size=4M", "--innodb-undo-tablespaces=0")
# The parts of mariadb-install-db that make tables; it needs more of a system than the tree is.
_SCRIPTS: Final = ("system_tables", "performance_tables", "system_tables_data")
_FIRST: Final = "CREATE DATABASE mysql;\nUSE mysql;\n"
# They also make a root without a password.
_LAST: Final = (
    "DELETE FROM global_priv;\nDELETE FROM proxies_priv;\n"
    "INSERT INTO global_priv VALUES ('localhost', 'slurm', "
    "JSON_OBJECT('access', CAST(-1 AS UNSIGNED), 'plugin', 'unix_socket'));\n"
)
# The server wants a /dev. The mount ends with it.
_OWN_MOUNTS: Final = ("unshare", "--mount", "--propagation=private")
_WITH_DEVICES: Final = 'mount --rbind /dev "$0/dev" && exec chroot "$0" "$@"'


def make_system_tables(tree: Path) -> None:
    """Leaves in the tree what a new server needs to start."""
    template = tree / TEMPLATE
    template.mkdir()
    os.chown(template, SLURM_UID, SLURM_UID)
    scripts = (tree / "usr/share/mariadb" / f"mariadb_{name}.sql" for name in _SCRIPTS)
    statements = "".join([_FIRST, *(script.read_text() for script in scripts), _LAST])
    options = ("--no-defaults", "--bootstrap", "--user=slurm", "--log-warnings=0", *_INNODB)
    server = ("/usr/sbin/mariadbd", *options, f"--datadir=/{TEMPLATE}")
    done = subprocess.run(
        [*_OWN_MOUNTS, "sh", "-c", _WITH_DEVICES, str(tree), *server],
        input=statements,
        text=True,
        capture_output=True,
        check=False,
    )
    if done.returncode != 0:
        raise ClusterError(f"MariaDB's tables were not made ({done.returncode}):\n{done.stderr}")


def choose_client_library(suite: str, take: Callable[[str], None], trial: Callable[[], None]) -> str:
    """The suite whose libmariadb slurmdbd works with; it is the tree's when this returns.

    `suite` is where the tree comes from. `take` gives the tree the library of another one. `trial`
    raises ClusterError where slurmdbd does not serve; so does this if there is no such library, with
    what was tried and how each went.
    """
    went = []
    for candidate in dict.fromkeys((suite, *CLIENT_LIBRARIES)):
        try:
            if candidate != suite:
                take(candidate)
            trial()
        except ClusterError as error:
            went.append(f"with libmariadb of Debian {candidate}: {error}")
        else:
            return candidate
    raise ClusterError("\n".join(["slurmdbd works with no libmariadb that Debian has:", *went]))


def copy_system_tables(tree: Path, place: Path) -> None:
    """A cluster's own, as the server's user needs them."""
    shutil.copytree(tree / TEMPLATE, place)
    for path in (place, *place.rglob("*")):
        os.chown(path, SLURM_UID, SLURM_UID)
