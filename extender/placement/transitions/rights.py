"""Messages about a refused account, QOS or reservation. A message lists the accounts, QOS or
reservations of the user, and never those of another user."""

from collections.abc import Iterable
from typing import Final

from extender.explain.quantities import listed
from slurm_client.model import JobSpec
from slurm_client.rights import Association, UserRights
from wellknown.quoting import quoted

_ACCOUNT: Final = frozenset({2045, 2130})
_QOS: Final = 2066
_NO_RESERVATION: Final = 2053
_RESERVATION: Final = frozenset({2052, _NO_RESERVATION})
NUMBERS: Final = _ACCOUNT | _RESERVATION | {_QOS}
"""Slurm's error numbers of these refusals (`slurm_client.errors.CAUSES`)."""


def lacking(number: int, job: JobSpec, partition: str, rights: UserRights) -> str:
    """Returns a message with the right that the user of a job lacks, and with the user's rights. Returns
    an empty text if Slurm does not report the user's rights."""
    if not rights.user:
        return ""
    if number in _RESERVATION:
        return _reservation(number, job, rights)
    if rights.associations is None:
        return ""
    if number == _QOS:
        return _qos(job, partition, rights.user, rights.associations)
    return _account(job, partition, rights.user, rights.associations)


def _account(job: JobSpec, partition: str, user: str, associations: Iterable[Association]) -> str:
    own = {each.account: None for each in associations}
    if not own:
        return f"{user} has no account"
    has = f"accounts of {user}: {listed(_account_in_words(each) for each in associations)}"
    if job.account is not None and job.account not in own:
        return f"{user} has no account {quoted(job.account)}; {has}"
    account = f"account {quoted(job.account)}" if job.account else "the default account"
    return f"Slurm refuses {account} of {user} in partition {partition}; {has}"


def _account_in_words(association: Association) -> str:
    name, partition = association.account, association.partition
    return f"{name} (partition {partition})" if partition else name


def _qos(job: JobSpec, partition: str, user: str, associations: Iterable[Association]) -> str:
    in_use = (
        a for a in associations if (a.default if job.account is None else a.account == job.account)
    )
    association = next(in_use, None)
    if association is None or not association.qos:
        return ""
    has = f"QOS of {user} in account {association.account}: {listed(association.qos)}"
    if job.qos is not None and job.qos not in association.qos:
        return f"{user} has no QOS {quoted(job.qos)}; {has}"
    qos = f"QOS {quoted(job.qos)}" if job.qos else "the default QOS"
    return f"Slurm refuses {qos} of {user} in partition {partition}; {has}"


def _reservation(number: int, job: JobSpec, rights: UserRights) -> str:
    name, user, own = quoted(job.reservation or ""), rights.user, rights.reservations
    cause = f"{user} may not use reservation {name}"
    if number == _NO_RESERVATION:
        cause = f"Slurm has no reservation {name}"
    return (
        f"{cause}; reservations of {user}: {listed(own)}"
        if own
        else f"{cause}; {user} has no reservation"
    )
