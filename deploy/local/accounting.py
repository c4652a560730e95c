"""Who may do what in a cluster with accounting: accounts, users, QOS and their limits; reservations.

    declare(cluster, Qos("small", limits=Limits(max_jobs=1)), Account("ml"),
            User("alice", accounts=("ml",), qos=("normal", "small")))

slurmdbd has told slurmctld when `declare` returns. All names are Slurm's own (sacctmgr(1)).
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Final

from deploy.local.cluster import Cluster

# Slurm's QOS that every new association may use.
NORMAL: Final = "normal"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What may be had at a time; None is without limit. A group is all users of the account or QOS,
    the others are each user's. TRES as Slurm writes them: "cpu=4,gres/gpu=2"."""

    group_jobs: int | None = None
    group_submit_jobs: int | None = None
    group_tres: str | None = None
    max_jobs: int | None = None
    max_submit_jobs: int | None = None
    max_tres_per_job: str | None = None
    max_wall_minutes: int | None = None


@dataclass(frozen=True, slots=True)
class Qos:
    """A quality of service. `flags` may have DenyOnLimit: refuse at submission what would wait."""

    name: str
    priority: int = 0
    flags: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True)
class Account:
    """An account; `qos` is what its users may use unless said otherwise of them."""

    name: str
    qos: tuple[str, ...] = (NORMAL,)
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True)
class User:
    """One of the cluster's job users in these accounts, the first of which is the default."""

    name: str
    accounts: tuple[str, ...]
    qos: tuple[str, ...] = (NORMAL,)
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True)
class Reservation:
    """Nodes that from now on only these users or accounts may use, and only by its name."""

    name: str
    nodes: tuple[str, ...]
    users: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    minutes: int = 60


def declare(cluster: Cluster, *declared: Qos | Account | User) -> None:
    """Makes each of them as it is declared, in this order, be it new or not; others stay."""
    for one in declared:
        match one:
            case Qos():
                _declare_qos(cluster, one)
            case Account():
                _declare_account(cluster, one)
            case User():
                for account in one.accounts:
                    _declare_association(cluster, one, account)


@contextmanager
def reserved(cluster: Cluster, reservation: Reservation) -> Iterator[None]:
    """The reservation is there until the block ends. Jobs in it should have ended by then."""
    whom = {"Users": reservation.users, "Accounts": reservation.accounts}
    cluster.run_slurm(
        "scontrol",
        "create",
        f"ReservationName={reservation.name}",
        f"Nodes={','.join(reservation.nodes)}",
        "StartTime=now",
        f"Duration={reservation.minutes}",
        *(f"{key}={','.join(names)}" for key, names in whom.items() if names),
    )
    try:
        yield
    finally:
        cluster.run_slurm("scontrol", "delete", f"ReservationName={reservation.name}")


# Fields of `Limits` by sacctmgr's names, of a QOS and of an association.
_OF_QOS: Final = {
    "group_jobs": "GrpJobs",
    "group_submit_jobs": "GrpSubmitJobs",
    "group_tres": "GrpTRES",
    "max_jobs": "MaxJobsPerUser",
    "max_submit_jobs": "MaxSubmitJobsPerUser",
    "max_tres_per_job": "MaxTRESPerJob",
    "max_wall_minutes": "MaxWall",
}
_OF_ASSOCIATION: Final = {
    **_OF_QOS,
    "max_jobs": "MaxJobs",
    "max_submit_jobs": "MaxSubmitJobs",
}
# sacctmgr's way to clear a limit; of TRES each has to be named.
_CLEARED: Final = {
    "group_tres": "cpu=-1,mem=-1,gres/gpu=-1",
    "max_tres_per_job": "cpu=-1,mem=-1,gres/gpu=-1",
}


def _declare_qos(cluster: Cluster, qos: Qos) -> None:
    if not _known(cluster, "qos", f"name={qos.name}"):
        _change(cluster, "add", "qos", qos.name)
    settings = [f"Priority={qos.priority}", f"Flags={','.join(qos.flags) or -1}"]
    settings += _limits(qos.limits, _OF_QOS)
    _change(cluster, "modify", "qos", qos.name, "set", *settings)


def _declare_account(cluster: Cluster, account: Account) -> None:
    if not _known(cluster, "account", f"name={account.name}"):
        _change(cluster, "add", "account", account.name)
    settings = [f"QOS={','.join(account.qos)}", *_limits(account.limits, _OF_ASSOCIATION)]
    _change(cluster, "modify", "account", account.name, "set", *settings)


def _declare_association(cluster: Cluster, user: User, account: str) -> None:
    if not _known(cluster, "association", f"user={user.name}", f"account={account}"):
        _change(cluster, "add", "user", user.name, f"account={account}")
    settings = [f"QOS={','.join(user.qos)}", *_limits(user.limits, _OF_ASSOCIATION)]
    where = (f"name={user.name}", f"account={account}")
    _change(cluster, "modify", "user", "where", *where, "set", *settings)


def _limits(limits: Limits, names: dict[str, str]) -> Sequence[str]:
    values = {one.name: getattr(limits, one.name) for one in fields(limits)}
    return [
        f"{names[name]}={_CLEARED.get(name, -1) if value is None else value}"
        for name, value in values.items()
    ]


def _known(cluster: Cluster, kind: str, *which: str) -> bool:
    return bool(cluster.run_slurm("sacctmgr", "-nP", "show", kind, *which).stdout.strip())


def _change(cluster: Cluster, *what: str) -> None:
    cluster.run_slurm("sacctmgr", "-i", *what)
