"""Checks the owner (user and group) that a request names for a job."""

from typing import Final

from slurm_client.errors import InvalidRequest
from slurm_client.model import JobSpec

LARGEST_ID: Final = 2**31 - 2
"""slurmrestd 24.11 cannot read larger numbers of users and groups."""
NOBODY: Final = 99
"""Slurm's number for "not set" (SLURM_AUTH_NOBODY). If a request names this number, the job belongs to
the user or group of the token, for example to root (24.11 and 26.05)."""
OWNERS: Final = f"0 to {LARGEST_ID}, except {NOBODY}, which Slurm treats as root"


def may_own(number: int) -> bool:
    """Returns True if a job may be requested for this user or group."""
    return 0 <= number <= LARGEST_ID and number != NOBODY


def check_allocation(spec: JobSpec, speaker: str | None) -> None:
    """Raises InvalidRequest if the request names an owner other than the token's user `speaker`. Slurm's
    job/allocate would ignore user_id and group_id without an error (24.11, 26.05). This client knows
    only root's numbers. So a request with another user's token must not name an owner at all."""
    own = {None, 0} if speaker == "root" else {None}
    if spec.user_id not in own or spec.group_id not in own:
        raise InvalidRequest("an allocation is always the token's own user's: submit it instead")


def group_of(spec: JobSpec) -> int | None:
    """Returns the group of a job. The default is the number of the job's user, because Slurm's own
    default would be the token's group."""
    return spec.user_id if spec.group_id is None else spec.group_id
