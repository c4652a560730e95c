"""Accounts, users, QOS and their limits, and reservations in a cluster with accounting.

    declare(cluster, Qos("small", limits=Limits(max_jobs=1)), Account("ml"),
            User("alice", accounts=("ml",), qos=("normal", "small")))

When `declare` returns, slurmctld knows the change, because slurmdbd has sent the update. QOS, accounts
and users have the same meaning as in sacctmgr(1).
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Final

from deploy.local.cluster import Cluster

# Slurm's built-in QOS. Every new association may use this QOS.
NORMAL: Final = "normal"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits on concurrent use. None means no limit. A `group_` limit applies to all users of the
    account or QOS together. Every other limit applies to each user, or to each job. TRES have Slurm's
    format, for example "cpu=4,gres/gpu=2"."""

    group_jobs: int | None = None
    group_submit_jobs: int | None = None
    group_tres: str | None = None
    max_jobs: int | None = None
    max_submit_jobs: int | None = None
    max_tres_per_job: str | None = None
    max_wall_minutes: int | None = None


@dataclass(frozen=True, slots=True)
class Qos:
    """A quality of service.

    * `flags` may contain DenyOnLimit: Slurm rejects a job at submission if the job would wait for a
      limit.
    * `preempts` names other QOS. Their jobs make room for the jobs of this QOS
      (PreemptType=preempt/qos). A preempted job must end within the `grace_s` of its own QOS.
    """

    name: str
    flags: tuple[str, ...] = ()
    priority: int = 0
    limits: Limits = field(default_factory=Limits)
    preempts: tuple[str, ...] = ()
    grace_s: int | None = None


@dataclass(frozen=True, slots=True)
class Account:
    """An account. `qos` applies to those users of the account that have no QOS list of their own."""

    name: str
    qos: tuple[str, ...] = (NORMAL,)
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True)
class User:
    """A user who runs jobs under these accounts. By default, a job has the first QOS and the first
    account."""

    name: str
    accounts: tuple[str, ...]
    qos: tuple[str, ...] = (NORMAL,)
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True)
class Reservation:
    """A reservation of `nodes` from `start`, for `minutes`. Only `users` or `accounts` may use the
    reservation, and their jobs must name it."""

    name: str
    nodes: tuple[str, ...]
    """("ALL",) means all nodes."""
    users: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    minutes: int = 60
    start: str = "now"
    """Time in scontrol(1)'s format, for example "now+1hours"."""
    flags: tuple[str, ...] = ()


def declare(cluster: Cluster, *declared: Qos | Account | User) -> None:
    """Creates or changes each QOS, account and user in slurmdbd, in the order of the arguments. Other
    QOS, accounts and users in slurmdbd stay unchanged."""
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
    """Reserves nodes until the `with` block ends. The jobs in the reservation should end before the
    block ends."""
    whom = {"Users": reservation.users, "Accounts": reservation.accounts}
    cluster.run_slurm(
        "scontrol",
        "create",
        f"ReservationName={reservation.name}",
        f"Nodes={','.join(reservation.nodes)}",
        f"StartTime={reservation.start}",
        f"Duration={reservation.minutes}",
        *([f"Flags={','.join(reservation.flags)}"] if reservation.flags else []),
        *(f"{key}={','.join(names)}" for key, names in whom.items() if names),
    )
    try:
        yield
    finally:
        if f"ReservationName={reservation.name} " in cluster.run_slurm("scontrol", "show", "res").stdout:
            cluster.run_slurm("scontrol", "delete", f"ReservationName={reservation.name}")


# Names of the fields of `Limits` in sacctmgr: first for a QOS, then for an association.
_OF_QOS: Final = {
    "group_jobs": "GrpJobs",
    "group_submit_jobs": "GrpSubmitJobs",
    "group_tres": "GrpTRES",
    "max_jobs": "MaxJobsPerUser",
    "max_submit_jobs": "MaxSubmitJobsPerUser",
    "max_tres_per_job": "MaxTRESPerJob",
    "max_wall_minutes": "MaxWall",
}
_OF_ASSOCIATION: Final = {**_OF_QOS, "max_jobs": "MaxJobs", "max_submit_jobs": "MaxSubmitJobs"}
# Values with which sacctmgr clears a setting. For TRES, the value names each TRES. All settings that are
# not listed here are cleared with -1.
_NO_TRES: Final = "cpu=-1,mem=-1,gres/gpu=-1"
_CLEARED: Final = {"GrpTRES": _NO_TRES, "MaxTRESPerJob": _NO_TRES, "Preempt": "", "GraceTime": "0"}

# Settings of a QOS, an account or an association, by their names in sacctmgr. None means that the
# setting must have no value.
_Settings = dict[str, str | None]


def _declare_qos(cluster: Cluster, qos: Qos) -> None:
    which = [f"name={qos.name}"]
    settings: _Settings = {
        "Priority": str(qos.priority),
        "Flags": ",".join(qos.flags) or None,
        "Preempt": ",".join(qos.preempts) or None,
        "GraceTime": None if qos.grace_s is None else str(qos.grace_s),
    }
    settings |= _limits(qos.limits, _OF_QOS)
    _make_so(cluster, "qos", which, settings, known=_known(cluster, "qos", which))


def _declare_account(cluster: Cluster, account: Account) -> None:
    which = [f"name={account.name}"]
    settings: _Settings = {"QOS": ",".join(account.qos)}
    settings |= _limits(account.limits, _OF_ASSOCIATION)
    _make_so(cluster, "account", which, settings, known=_known(cluster, "account", which))


def _declare_association(cluster: Cluster, user: User, account: str) -> None:
    which = [f"user={user.name}", f"account={account}"]
    settings: _Settings = {"QOS": ",".join(user.qos), "DefaultQOS": user.qos[0]}
    settings |= _limits(user.limits, _OF_ASSOCIATION)
    _make_so(cluster, "user", which, settings, known=_known(cluster, "association", which))


def _limits(limits: Limits, names: Mapping[str, str]) -> _Settings:
    given = {names[one.name]: getattr(limits, one.name) for one in fields(limits)}
    return {name: None if value is None else str(value) for name, value in given.items()}


def _known(cluster: Cluster, kind: str, which: Sequence[str]) -> bool:
    return bool(cluster.run_slurm("sacctmgr", "-nP", "show", kind, *which).stdout.strip())


def _make_so(
    cluster: Cluster, kind: str, which: Sequence[str], settings: _Settings, *, known: bool
) -> None:
    """Creates or changes a QOS, an account or an association in a single call of sacctmgr, because
    slurmdbd needs about 50 ms for each change."""
    if known:
        all_of_it = (f"{name}={value or _CLEARED.get(name, -1)}" for name, value in settings.items())
        cluster.run_slurm("sacctmgr", "-i", "modify", kind, "where", *which, "set", *all_of_it)
    else:
        # Passes only settings with a value. In Slurm 24.11.5, `add qos Flags=-1` creates a QOS that no
        # user may use.
        given = (f"{name}={value}" for name, value in settings.items() if value)
        cluster.run_slurm("sacctmgr", "-i", "add", kind, *which, *given)
