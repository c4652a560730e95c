"""The owner that a request asks for a job."""

from typing import Final

from slurm_client.errors import InvalidRequest
from slurm_client.model import JobSpec

LARGEST_ID: Final = 2**31 - 2
"""slurmrestd 24.11 cannot read larger numbers of users and groups."""
NOBODY: Final = 99
"""Slurm's own word for "not said" (SLURM_AUTH_NOBODY): a job that is asked for as this user's, or this
group's, is the token's own, which is root's (24.11 and 26.05)."""
OWNERS: Final = f"0 to {LARGEST_ID}, but for {NOBODY}, which Slurm takes for root"


def may_own(number: int) -> bool:
    """Whether a job may be asked for as this user's or this group's."""
    return 0 <= number <= LARGEST_ID and number != NOBODY


def check_allocation(spec: JobSpec, speaker: str | None) -> None:
    """Raises InvalidRequest for a foreign owner: job/allocate ignores user_id and group_id in silence
    (24.11, 26.05).

    `speaker` is the user that the token is for; only root's numbers are known without asking.
    """
    own = {None, 0} if speaker == "root" else {None}
    if spec.user_id not in own or spec.group_id not in own:
        raise InvalidRequest("an allocation is always the token's own user's: submit it instead")


def group_of(spec: JobSpec) -> int | None:
    """The group: the user's number where none is given, since Slurm would take the token's."""
    return spec.user_id if spec.group_id is None else spec.group_id
