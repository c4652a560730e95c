"""Rights of a Slurm user: accounts, QOS and reservations that the user may ask for."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Association:
    """Membership of a user in an account (sacctmgr(1) show associations)."""

    account: str
    qos: tuple[str, ...] = ()
    partition: str = ""
    """The only partition of the membership; empty for all partitions."""
    default: bool = False
    """The account of the user's jobs that name no account."""


@dataclass(frozen=True, slots=True)
class UserRights:
    """What Slurm tells about one user, and about no other."""

    user: str = ""
    """Name of the user; empty if Slurm does not tell the name."""
    unknown: bool = False
    """slurmctld cannot resolve the user."""
    associations: tuple[Association, ...] | None = None
    """None without slurmdbd, or without the user's name."""
    reservations: tuple[str, ...] = ()
    """Names of the reservations that certainly admit the user."""
