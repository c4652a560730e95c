"""Rights of a Slurm user: the user's accounts, QOS and reservations."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Association:
    """Membership of a user in an account (sacctmgr(1) show associations)."""

    account: str
    qos: tuple[str, ...] = ()
    partition: str = ""
    """The only partition of the membership; empty for all partitions."""
    default: bool = False
    """True for the account of the user's jobs without `--account`."""


@dataclass(frozen=True, slots=True)
class UserRights:
    """The rights of a single user, as Slurm reports them."""

    user: str = ""
    """Name of the user; empty if Slurm does not report the name."""
    unknown: bool = False
    """True if slurmctld cannot resolve the user."""
    associations: tuple[Association, ...] | None = None
    """None without slurmdbd, or without the user's name."""
    reservations: tuple[str, ...] = ()
    """Names of reservations for the user. A doubtful reservation is left out."""
