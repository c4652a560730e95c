"""Who may do what in a cluster with accounting: accounts, users, QOS and their limits; reservations.

    declare(cluster, Qos("small", limits=Limits(max_jobs=1)), Account("ml"),
            User("alice", accounts=("ml",), qos=("normal", "small")))

slurmdbd has told slurmctld when `declare` returns. All names are Slurm's own (sacctmgr(1)).
"""

from collections.abc import Iterator, Mapping, Sequence
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
    """A quality of service. `flags` may have DenyOnLimit: refuse at submission what would wait.
    `preempts` names those whose jobs make room for its own (PreemptType=preempt/qos), each of which then
    has its `grace_s` to leave."""

    name: str
    flags: tuple[str, ...] = ()
    priority: int = 0
    limits: Limits = field(default_factory=Limits)
    preempts: tuple[str, ...] = ()
    grace_s: int | None = None


@dataclass(frozen=True, slots=True)
class Account:
    """An account; `qos` is what its users may use unless said otherwise of them."""

    name: str
    qos: tuple[str, ...] = (NORMAL,)
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True)
class User:
    """A job user in these accounts. The first QOS and the first account are the defaults of its jobs."""

    name: str
    accounts: tuple[str, ...]
    qos: tuple[str, ...] = (NORMAL,)
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True)
class Reservation:
    """Nodes that from its start on only these users or accounts may use, and only by its name."""

    name: str
    nodes: tuple[str, ...]
    """("ALL",) is all that there are."""
    users: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    minutes: int = 60
    start: str = "now"
    """As scontrol(1) takes it: "now+1hours"."""
    flags: tuple[str, ...] = ()


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
    """Reserves nodes until the block ends. Jobs in the reservation should have ended by then."""
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
_OF_ASSOCIATION: Final = {**_OF_QOS, "max_jobs": "MaxJobs", "max_submit_jobs": "MaxSubmitJobs"}
# How sacctmgr clears a setting: by -1, but each TRES by its name.
_NO_TRES: Final = "cpu=-1,mem=-1,gres/gpu=-1"
_CLEARED: Final = {"GrpTRES": _NO_TRES, "MaxTRESPerJob": _NO_TRES, "Preempt": "", "GraceTime": "0"}

# None is for a setting that there is not.
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
    """In one change, each of which takes slurmdbd some 50 ms."""
    if known:
        all_of_it = (f"{name}={value or _CLEARED.get(name, -1)}" for name, value in settings.items())
        cluster.run_slurm("sacctmgr", "-i", "modify", kind, "where", *which, "set", *all_of_it)
    else:
        # Only what there is: from 24.11.5's `add qos Flags=-1` slurmctld gets a QOS that nobody may use.
        given = (f"{name}={value}" for name, value in settings.items() if value)
        cluster.run_slurm("sacctmgr", "-i", "add", kind, *which, *given)
