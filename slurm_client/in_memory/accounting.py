"""Accounts, QOS and limits of an `InMemorySlurm` (AccountingStorageEnforce=associations,limits,qos).

A job over a limit on submissions is rejected. A job over a limit on running jobs waits.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from slurm_client import rights
from slurm_client.in_memory import rejections
from slurm_client.in_memory.record import Record
from slurm_client.model import JobSpec

NORMAL: Final = "normal"
"""Name of the QOS that every cluster has."""

REASONS: Final = frozenset(
    {
        *("AssocGrpJobsLimit", "AssocMaxCpuPerJobLimit", "AssocMaxJobsLimit"),
        *("QOSGrpJobsLimit", "QOSMaxCpuPerJobLimit", "QOSMaxJobsPerUserLimit"),
    }
)
"""Pending reasons of jobs that wait because of a limit. Such a job does not block later jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits on concurrent use. None means no limit. `max_jobs` limits a user's running jobs,
    `max_submit_jobs` a user's running and waiting jobs, and `group_jobs` the running jobs of all
    users."""

    group_jobs: int | None = None
    max_jobs: int | None = None
    max_submit_jobs: int | None = None
    max_cpus_per_job: int | None = None


@dataclass(frozen=True, slots=True)
class Qos:
    """A QOS. Slurm rejects a job with more CPUs than `max_cpus_per_job` if `deny_on_limit` is True. If
    `deny_on_limit` is False, such a job waits."""

    name: str
    limits: Limits = field(default_factory=Limits)
    deny_on_limit: bool = False


@dataclass(frozen=True, slots=True)
class Association:
    """A user's right to an account, and to QOS in the account. The first of `qos` is the default QOS. A
    user's first association names the default account of the user."""

    user_id: int
    account: str
    qos: tuple[str, ...] = (NORMAL,)
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True)
class Accounting:
    """The data of slurmdbd. By default root has the account root, as in a new cluster."""

    associations: tuple[Association, ...] = ()
    qos: tuple[Qos, ...] = ()


class Enforcement:
    """The rules of an `Accounting`. Without an `Accounting`, every request is allowed."""

    def __init__(self, accounting: Accounting | None) -> None:
        given = accounting or Accounting()
        self._enforced = accounting is not None
        self._associations = (*given.associations, Association(0, "root"))
        self._qos = {NORMAL: Qos(NORMAL)} | {one.name: one for one in given.qos}

    def charged(self, spec: JobSpec, user_id: int) -> tuple[str, str]:
        """Returns the account and the QOS of a job. Raises Slurm's error 2045 for a wrong account, and
        2066 for a wrong QOS."""
        if not self._enforced:
            return spec.account or "", spec.qos or ""
        association = self._association(user_id, spec.account)
        if association is None:
            raise rejections.rejection("ESLURM_INVALID_ACCOUNT")
        if (qos := spec.qos or association.qos[0]) not in association.qos:
            raise rejections.rejection("ESLURM_INVALID_QOS")
        return association.account, qos

    def associations(self, user_id: int) -> tuple[rights.Association, ...] | None:
        """Returns a user's associations, at most one for each account. Returns None without
        accounting."""
        if not self._enforced:
            return None
        found = {each.account: each for each in reversed(self._associations) if each.user_id == user_id}
        own = [*reversed(found.values())]
        return tuple(rights.Association(each.account, each.qos, default=each is own[0]) for each in own)

    def check(self, record: Record, others: Iterable[Record]) -> None:
        """Raises Slurm's error 2050 if a limit does not even allow the job to wait. `others` are the
        live jobs."""
        if not self._enforced:
            return
        qos, association = self._limiting(record)
        too_many = any(
            _reached(_own(record, peers), limits.max_submit_jobs)
            for limits, peers in self._peers(qos, association, record, list(others))
        )
        if too_many or (qos.deny_on_limit and _too_large(record, qos.limits)):
            raise rejections.rejection("ESLURM_ACCOUNTING_POLICY")

    def reason(self, record: Record, others: Iterable[Record]) -> str | None:
        """Returns the pending reason of a job that must wait because of a limit, or None. `others` are
        the live jobs."""
        if not self._enforced:
            return None
        running = [one for one in others if one.has_nodes]
        qos, association = self._limiting(record)
        names = (("QOS", "PerUser"), ("Assoc", ""))
        scopes = self._peers(qos, association, record, running)
        for (scope, each), (limits, peers) in zip(names, scopes, strict=True):
            if _too_large(record, limits):
                return f"{scope}MaxCpuPerJobLimit"
            if _reached(len(peers), limits.group_jobs):
                return f"{scope}GrpJobsLimit"
            if _reached(_own(record, peers), limits.max_jobs):
                return f"{scope}MaxJobs{each}Limit"
        return None

    def _association(self, user_id: int, account: str | None) -> Association | None:
        own = (one for one in self._associations if one.user_id == user_id)
        return next((one for one in own if account in {None, one.account}), None)

    def _limiting(self, record: Record) -> tuple[Qos, Association]:
        association = self._association(record.user_id, record.account)
        assert association is not None  # checked by `charged`
        return self._qos[record.qos], association

    def _peers(
        self, qos: Qos, association: Association, record: Record, jobs: Iterable[Record]
    ) -> Iterator[tuple[Limits, list[Record]]]:
        """Yields the limits of the QOS, with the other jobs that count for these limits. Then yields the
        same for the association."""
        rest = [one for one in jobs if one.id != record.id]
        yield qos.limits, [one for one in rest if one.qos == qos.name]
        same = (record.user_id, record.account)
        yield association.limits, [one for one in rest if (one.user_id, one.account) == same]


def _own(record: Record, peers: Iterable[Record]) -> int:
    """Returns how many of the `peers` belong to the user of `record`."""
    return sum(one.user_id == record.user_id for one in peers)


def _reached(count: int, limit: int | None) -> bool:
    return limit is not None and count >= limit


def _too_large(record: Record, limits: Limits) -> bool:
    most = limits.max_cpus_per_job
    return most is not None and record.spec.cpus * record.spec.nodes > most
