"""MariaDB for slurmdbd. The system tables are made once, with the tree, and each cluster has a copy.

MariaDB listens on a socket only, runs as SlurmUser, and accepts only SlurmUser: the kernel reports the
user of the connecting process. No data outlives the cluster, so MariaDB does not flush its data to the
disk.
"""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

from deploy.local.errors import ClusterError
from deploy.local.users import SLURM_UID

# The package mariadb-server, without -core, would also install Perl, a client, and scripts for a
# service.
PACKAGES: Final = ("mariadb-server-core", "slurm-wlm-mysql-plugin", "slurmdbd")

# Debian suites with other releases of libmariadb. These are tried in this order if slurmdbd does not
# work with the libmariadb of its own suite. libmariadb 3.4.10 of forky and trixie (November 2026)
# rejects every result (error 5027), and bookworm's libmariadb works.
CLIENT_LIBRARIES: Final = ("trixie", "bookworm")

TEMPLATE: Final = "usr/share/slurm-extender-database"

# Options for small files, because each cluster has a copy of the files.
_INNODB: Final = ("--innodb-log-file-size=4M", "--innodb-undo-tablespaces=0")
# The scripts of mariadb-install-db that make tables. mariadb-install-db itself needs a larger system.
_SCRIPTS: Final = ("system_tables", "performance_tables", "system_tables_data")
_FIRST: Final = "CREATE DATABASE mysql;\nUSE mysql;\n"
# Statements that replace all accounts, because the scripts also create an account root without a
# password.
_LAST: Final = (
    "DELETE FROM global_priv;\nDELETE FROM proxies_priv;\n"
    "INSERT INTO global_priv VALUES ('localhost', 'slurm', "
    "JSON_OBJECT('access', CAST(-1 AS UNSIGNED), 'plugin', 'unix_socket'));\n"
)
# The server needs a /dev. The mount ends with the server.
_OWN_MOUNTS: Final = ("unshare", "--mount", "--propagation=private")
_WITH_DEVICES: Final = 'mount --rbind /dev "$0/dev" && exec chroot "$0" "$@"'


def make_system_tables(tree: Path) -> None:
    """Writes the files of a new MariaDB server, with its system tables, into the tree."""
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
    """Gives the tree a libmariadb with which slurmdbd works, and returns the suite of the library.

    `suite` is the tree's suite. `take` gives the tree the library of another suite. `trial` raises
    ClusterError if slurmdbd does not serve. Without a working library, raises ClusterError with the
    result of each trial.
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
    """Copies the system tables for a cluster. The server's user owns the copy."""
    shutil.copytree(tree / TEMPLATE, place)
    for path in (place, *place.rglob("*")):
        os.chown(path, SLURM_UID, SLURM_UID)
