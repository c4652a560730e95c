"""The actions that a changed key of slurm.conf needs to take effect. `TABLE` has a row for each key that
needs more than `scontrol reconfigure`.

Since 23.11, `scontrol reconfigure` restarts slurmctld and slurmd. For all keys without a row, this
restart is enough.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final


class Need(IntEnum):
    """The action that a change needs to take effect. For several changes, the greatest value counts."""

    NOTHING = 0
    RECONFIGURE = 1
    RESTART = 2
    """The program restarts slurmctld. `scontrol reconfigure` follows, so that slurmds get the
    files."""
    RESTART_ALL = 3
    """The program restarts slurmctld. A person restarts every slurmd."""
    RESTART_WITHOUT_RECONFIGURE = 4
    """Like RESTART_ALL, but without `scontrol reconfigure`: this command would make slurmds apply the
    change while jobs run."""
    BY_HAND = 5
    """A restart is not enough, so a person must make the change. The program rejects the change, and
    gives the reason (`Row.why`)."""


@dataclass(frozen=True, slots=True)
class Row:
    """The action that a change of one key needs, with the reason and the source."""

    need: Need
    why: str
    source: str


_LISTENING: Final = "slurm.conf(5): changes to TCP listening settings will require a daemon restart"
_NOT_AUTHENTICATION: Final = (
    "scontrol(1) reconfigure: will not change listening ports or the authentication mechanism"
)
_STATE: Final = "slurmctld.8: the state is where StateSaveLocation says, and belongs to SlurmUser"

TABLE: Final[dict[str, Row]] = {
    "slurmctldport": Row(
        Need.RESTART, "slurmctld changes listening ports only at a restart", _LISTENING
    ),
    "slurmctldhost": Row(
        Need.RESTART, "slurmctld changes listening addresses only at a restart", _LISTENING
    ),
    "slurmctldaddr": Row(
        Need.RESTART, "slurmctld changes listening addresses only at a restart", _LISTENING
    ),
    "communicationparameters": Row(
        Need.RESTART_ALL, "some options set the addresses that daemons listen on", _LISTENING
    ),
    "slurmdport": Row(
        Need.RESTART_ALL, "slurmd changes its listening port only at a restart", _LISTENING
    ),
    "authinfo": Row(Need.RESTART_ALL, "all daemons need the same value", _NOT_AUTHENTICATION),
    "authalttypes": Row(
        Need.RESTART, "slurmctld changes authentication only at a restart", _NOT_AUTHENTICATION
    ),
    "authtype": Row(
        Need.BY_HAND,
        "all daemons and commands must end first, and no job should run",
        "slurm.conf(5) AuthType",
    ),
    "credtype": Row(
        Need.BY_HAND, "all daemons must end first, and no job should run", _NOT_AUTHENTICATION
    ),
    "switchtype": Row(
        Need.BY_HAND, "the records of all jobs may be lost at a restart", "slurm.conf(5) SwitchType"
    ),
    "selecttype": Row(
        Need.BY_HAND,
        "another plugin cannot read running jobs",
        "slurmctld: state of a job has the plugin's id",
    ),
    "clustername": Row(
        Need.BY_HAND,
        "slurmctld refuses the state of another cluster name",
        "slurmctld: CLUSTER NAME MISMATCH",
    ),
    "statesavelocation": Row(
        Need.BY_HAND, "the state would stay behind: all jobs would be lost", _STATE
    ),
    "slurmuser": Row(Need.BY_HAND, "the state belongs to the old user", _STATE),
    "slurmduser": Row(
        Need.RESTART_ALL, "slurmd changes its user only at a restart", _NOT_AUTHENTICATION
    ),
    "slurmdspooldir": Row(
        Need.BY_HAND, "slurmd finds its running jobs in this folder", "slurm.conf(5) SlurmdSpoolDir"
    ),
}
"""Rows by the key in lower case. All other keys need `scontrol reconfigure`."""
PLAIN: Final = Row(Need.RECONFIGURE, "", "scontrol(1) reconfigure")

DEVICES: Final = Row(
    Need.RESTART_WITHOUT_RECONFIGURE,
    "slurmd would number devices in another order under running jobs: restart slurmd on drained nodes",
    "gres.conf(5): slurmd sorts devices by its lines, and by the types of the node's Gres",
)
"""Action for a changed gres.conf, and for changed Gres of a node."""

OTHER_KEYS: Final = Row(
    Need.BY_HAND,
    "slurmctld, slurmdbd, every slurmd and every sackd need the new keys at the same moment",
    "authentication.html: slurm.jwks, with several keys, is for rotation",
)
"""Action for a new slurm.key or slurm.jwks that has none of the earlier keys. Other changes of these
files need `scontrol reconfigure`."""


def of_setting(key: str) -> Row:
    """Returns the row of a key, or PLAIN for a key without a row. The key may be in upper or lower
    case."""
    return TABLE.get(key.lower(), PLAIN)
