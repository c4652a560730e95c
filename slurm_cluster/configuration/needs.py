"""What a changed key of slurm.conf needs before it counts: `TABLE`, with the source of each row.

Since 23.11 `scontrol reconfigure` restarts slurmctld and slurmd: enough for all but a few keys."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final


class Need(IntEnum):
    """What has to happen; of several needs the greatest counts."""

    NOTHING = 0
    RECONFIGURE = 1
    RESTART = 2
    """Of slurmctld; `scontrol reconfigure` follows, so that slurmds have the files."""
    RESTART_ALL = 3
    """Of slurmctld, by the program, and of every slurmd, which is left to a person."""
    RESTART_WITHOUT_RECONFIGURE = 4
    """The same, without `scontrol reconfigure`: slurmd would take the change under jobs that run."""
    BY_HAND = 5
    """More than a restart: the program leaves it alone and says why."""


@dataclass(frozen=True, slots=True)
class Row:
    """The need of one key."""

    need: Need
    why: str
    source: str


_LISTENING: Final = "slurm.conf(5): changes to TCP listening settings will require a daemon restart"
_NOT_AUTHENTICATION: Final = (
    "scontrol(1) reconfigure: will not change listening ports or the authentication mechanism"
)
_STATE: Final = "slurmctld.8: the state is where StateSaveLocation says, and belongs to SlurmUser"

TABLE: Final[dict[str, Row]] = {
    "slurmctldport": Row(Need.RESTART, "slurmctld keeps the ports that it listens on", _LISTENING),
    "slurmctldhost": Row(Need.RESTART, "slurmctld keeps the addresses that it listens on", _LISTENING),
    "slurmctldaddr": Row(Need.RESTART, "slurmctld keeps the addresses that it listens on", _LISTENING),
    "communicationparameters": Row(
        Need.RESTART_ALL, "some of its options say where daemons listen", _LISTENING
    ),
    "slurmdport": Row(Need.RESTART_ALL, "slurmd keeps the port that it listens on", _LISTENING),
    "authinfo": Row(Need.RESTART_ALL, "all daemons have to agree on it", _NOT_AUTHENTICATION),
    "authalttypes": Row(Need.RESTART, "slurmctld keeps how it authenticates", _NOT_AUTHENTICATION),
    "authtype": Row(
        Need.BY_HAND,
        "all daemons and commands have to end before, and no job should run",
        "slurm.conf(5) AuthType",
    ),
    "credtype": Row(
        Need.BY_HAND, "all daemons have to end before, and no job should run", _NOT_AUTHENTICATION
    ),
    "switchtype": Row(
        Need.BY_HAND, "the records of all jobs may be lost at a restart", "slurm.conf(5) SwitchType"
    ),
    "selecttype": Row(
        Need.BY_HAND,
        "jobs that run cannot be read by another plugin",
        "slurmctld: state of a job has the plugin's id",
    ),
    "clustername": Row(
        Need.BY_HAND, "slurmctld refuses state of another name", "slurmctld: CLUSTER NAME MISMATCH"
    ),
    "statesavelocation": Row(
        Need.BY_HAND, "the state would stay behind: all jobs would be lost", _STATE
    ),
    "slurmuser": Row(Need.BY_HAND, "the state is the old user's", _STATE),
    "slurmduser": Row(Need.RESTART_ALL, "slurmd starts as the user that it is", _NOT_AUTHENTICATION),
    "slurmdspooldir": Row(
        Need.BY_HAND, "slurmd finds the jobs that it runs there", "slurm.conf(5) SlurmdSpoolDir"
    ),
}
"""By the key in lower case. Every other key needs `scontrol reconfigure`."""
PLAIN: Final = Row(Need.RECONFIGURE, "", "scontrol(1) reconfigure")

DEVICES: Final = Row(
    Need.RESTART_WITHOUT_RECONFIGURE,
    "slurmd would number devices in another order under jobs that run: restart it on drained nodes",
    "gres.conf(5): slurmd sorts devices by its lines, and by the types of the node's Gres",
)
"""Of gres.conf, and of a node's Gres."""

OTHER_KEYS: Final = Row(
    Need.BY_HAND,
    "slurmctld, slurmdbd, every slurmd and every sackd have to get it at the same moment",
    "authentication.html: slurm.jwks, with several keys, is for rotation",
)
"""Of slurm.key and slurm.jwks without any earlier key. Other changes need `scontrol reconfigure`."""


def of_setting(key: str) -> Row:
    """Returns the row of a key, whatever its case."""
    return TABLE.get(key.lower(), PLAIN)
