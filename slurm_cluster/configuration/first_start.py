"""Whether slurmctld can start for the first time.

Without slurmdbd's TRES it ends at once ("we have no TRES from it"). Its state of an earlier start has
them too; before the first start slurmdbd alone has. The kubelet waits longer after each such end, up to
five minutes, so it is better not to start.
"""

import socket
from pathlib import Path
from typing import Final

from slurm_cluster.configuration.slurm_conf import SlurmConf

_TRES: Final = "last_tres"
_PORT: Final = "6819"
_ANSWERS_S: Final = 5.0


def lacks(conf: SlurmConf, state: Path) -> str:
    """Returns what slurmctld lacks for its start; "" where that is nothing. slurmdbd listens when it has
    its database."""
    settings = conf.settings()
    if "accountingstoragetype" not in settings or (state / _TRES).is_file():
        return ""
    host = settings.get("accountingstoragehost", ("localhost",))[-1]
    port = settings.get("accountingstorageport", (_PORT,))[-1]
    try:
        socket.create_connection((host, int(port)), _ANSWERS_S).close()
    except (OSError, ValueError) as error:
        return (
            f"slurmctld has no first start without slurmdbd, and {host}:{port} does not answer: {error}"
        )
    return ""
