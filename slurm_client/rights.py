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
    """True if the user's jobs without `--account` belong to this account."""


@dataclass(frozen=True, slots=True)
class UserRights:
    """The rights of a single user, as Slurm reports them."""

    user: str = ""
    """Name of the user; empty if Slurm does not report the name."""
    unknown: bool = False
    """True if slurmctld cannot resolve the user."""
    associations: tuple[Association, ...] | None = None
    """None if Slurm has no slurmdbd, or if the user's name is not known."""
    reservations: tuple[str, ...] = ()
    """Names of the reservations that certainly admit the user. A doubtful reservation is left out."""
