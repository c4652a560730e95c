"""Explains why Slurm refuses an account, a QOS or a reservation. A cause lists the accounts, QOS or
reservations of the job's user, and never the rights of another user."""

from collections.abc import Iterable
from typing import Final

from extender.explain.cause import Cause, Kind
from extender.explain.quantities import first
from slurm_client.model import JobSpec
from slurm_client.rights import Association, UserRights

_ACCOUNT: Final = frozenset({2045, 2130})
_QOS: Final = 2066
_NO_RESERVATION: Final = 2053
_RESERVATION: Final = frozenset({2052, _NO_RESERVATION})
NUMBERS: Final = _ACCOUNT | _RESERVATION | {_QOS}
"""Slurm's error numbers of these refusals (`slurm_client.errors.CAUSES`)."""


def lacking(number: int, job: JobSpec, partition: str, rights: UserRights) -> Cause | None:
    """Returns a cause with the right that the user of a job lacks, and with the rights that the user
    has. Returns None if Slurm does not report the user's rights."""
    if not rights.user:
        return None
    if number in _RESERVATION:
        return _reservation(number, job, rights)
    if rights.associations is None:
        return None
    if number == _QOS:
        return _qos(job, partition, rights.user, rights.associations)
    return _account(job, partition, rights.user, rights.associations)


def _account(job: JobSpec, partition: str, user: str, associations: Iterable[Association]) -> Cause:
    accounts = tuple([(each.account, each.partition) for each in associations])
    if not accounts:
        return Cause.of(Kind.WITHOUT_ACCOUNT, user=user)
    named, more = first(accounts)
    has = Cause.of(Kind.OWN_ACCOUNTS, user=user, accounts=named, more=more)
    if job.account is not None and job.account not in dict(accounts):
        return Cause.of(Kind.OTHER_ACCOUNTS, user=user, account=job.account, has=has)
    name = job.account
    return Cause.of(Kind.ACCOUNT_REFUSED, name=name, user=user, partition=partition, has=has)


def _qos(job: JobSpec, partition: str, user: str, associations: Iterable[Association]) -> Cause | None:
    in_use = (
        a for a in associations if (a.default if job.account is None else a.account == job.account)
    )
    association = next(in_use, None)
    if association is None or not association.qos:
        return None
    qos, more = first(association.qos)
    has = Cause.of(Kind.OWN_QOS, user=user, account=association.account, qos=qos, more=more)
    if job.qos is not None and job.qos not in association.qos:
        return Cause.of(Kind.OTHER_QOS, user=user, qos=job.qos, has=has)
    return Cause.of(Kind.QOS_REFUSED, name=job.qos, user=user, partition=partition, has=has)


def _reservation(number: int, job: JobSpec, rights: UserRights) -> Cause:
    name, user = job.reservation or "", rights.user
    names, more = first(rights.reservations)
    has = Cause.of(Kind.OWN_RESERVATIONS, user=user, names=names, more=more)
    if number == _NO_RESERVATION:
        return Cause.of(Kind.RESERVATION_UNKNOWN, name=name, has=has)
    return Cause.of(Kind.RESERVATION_REFUSED, user=user, name=name, has=has)
