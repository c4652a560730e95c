"""The errors of calls to Slurm, sorted by what the caller should do next.

One table gives the error for each of Slurm's error numbers, and the reason. The adapter (`rest`) raises
these errors alone; no error of a lower layer leaks through.
"""

from __future__ import annotations

from typing import Final, NamedTuple

OUTAGE: Final = "Slurm"
BAD_TOKEN: Final = "Slurm's token"  # noqa: S105 - no token
"""The names of two troubles: an outage of slurmrestd or slurmctld, and a token that Slurm does not
take."""


class SlurmError(Exception):
    """A call to Slurm did not do what was asked. A subclass says what to do next.

    `number` is Slurm's error number (slurm_errno.h) where it gave one, `http_status` the reply's,
    `words` what the server said, `job_id` the id that the reply named, if any.
    """

    def __init__(
        self,
        words: str,
        *,
        number: int | None = None,
        http_status: int | None = None,
        job_id: int | None = None,
    ) -> None:
        super().__init__(words)
        self.words = words
        self.number = number
        self.http_status = http_status
        self.job_id = job_id

    @property
    def common_trouble(self) -> str | None:
        """The name of the outage that this error is part of: every call gets this answer. None where
        the error is about one call alone."""
        return OUTAGE if _is_outage(self) else None

    def __str__(self) -> str:
        told = [f"Slurm error {self.number}"] if self.number is not None else []
        if self.http_status is not None:
            told.append(f"HTTP {self.http_status}")
        return f"{self.words} ({', '.join(told)})" if told else self.words


class NoRoomNow(SlurmError):
    """Slurm rejected an immediate allocation. Nothing is queued and the job id is used up: a record
    that FAILED may hold it until MinJobAge. Submit under the next id, or ask again later."""


class JobIdTaken(SlurmError):
    """The job id is in use, or was used by a job that Slurm remembers. Read it and compare its key."""


class NameTaken(SlurmError):
    """A job of that name and owner is there already, so that no other is made. Find it, and compare.
    Where Slurm holds a job as soon as it is made it gives the same answer, and there is none."""


class OtherJob(SlurmError):
    """The job under that id has another name than the one that was meant, and runs on. Read it:
    its owner has renamed it, or the id stands for another job by now."""


class InvalidRequest(SlurmError):
    """Slurm can never do this: change the request, and tell its author.

    Nothing waits or runs, but a FAILED record may hold the job id until MinJobAge (2014 leaves one).
    """


class RetryLater(SlurmError):
    """Slurm rejects the request for now (busy, a limit on jobs). Nothing was created: ask again
    later."""


class Unreachable(RetryLater):
    """No connection could be made, to slurmrestd or from it to slurmctld: nothing was sent."""


class OutcomeUnknown(SlurmError):
    """The request may have been carried out, or not. Send the same again, under the same id."""


class Unreadable(OutcomeUnknown):
    """Slurm answered, and the entry of the job or node cannot be read. That says nothing about it,
    least of all that it does not exist. Ask again, or do without."""


class Unexplained(OutcomeUnknown):
    """Slurm answered with an error that says nothing: a plugin may reject the request, or slurmctld is
    down.

    Find out whether the request was carried out. Where it was not, and gets this answer again and
    again, it is rejected.
    """


class NeedsOperator(SlurmError):
    """Neither waiting nor another request helps (token, permission, settings): tell a person."""


class BadToken(NeedsOperator):
    """There is no token, or Slurm does not take it: every call fails until there is another."""

    @property
    def common_trouble(self) -> str | None:
        return BAD_TOKEN


class ErrorMeaning(NamedTuple):
    """One of Slurm's error numbers: its name in slurm_errno.h and what follows from it."""

    name: str
    error: type[SlurmError]
    why: str


# slurm/slurm_errno.h of 26.05, and 1 (EPERM) and 11 (EAGAIN) of the system's own.
CAUSES: Final[dict[int, ErrorMeaning]] = {
    # job_submit.lua's `return slurm.ERROR`. What it says by slurm.log_user is in slurmrestd's log, and
    # in the reply only where the job is taken (24.11.5, 26.05.5).
    -1: ErrorMeaning(
        "SLURM_ERROR",
        Unexplained,
        "perhaps a plugin of Slurm's refuses it (job_submit.lua): its words are in slurmrestd's log",
    ),
    # the system's
    # Not NeedsOperator: 26.05.5 answers a DELETE so (HTTP 403) also while slurmctld is down.
    1: ErrorMeaning(
        "EPERM", Unexplained, "slurmctld is down, the job is another user's, or a plugin refuses it"
    ),
    11: ErrorMeaning(
        "EAGAIN", RetryLater, "MaxJobCount is reached (before 25.11), or slurmctld is busy"
    ),
    # between slurmrestd and slurmctld
    1000: ErrorMeaning("SLURM_UNEXPECTED_MSG_ERROR", OutcomeUnknown, "the reply was not understood"),
    1001: ErrorMeaning(
        "SLURM_COMMUNICATIONS_CONNECTION_ERROR", Unreachable, "slurmctld was not reached"
    ),
    1002: ErrorMeaning("SLURM_COMMUNICATIONS_SEND_ERROR", OutcomeUnknown, "lost while sending"),
    1003: ErrorMeaning("SLURM_COMMUNICATIONS_RECEIVE_ERROR", OutcomeUnknown, "lost before the reply"),
    1004: ErrorMeaning("SLURM_COMMUNICATIONS_SHUTDOWN_ERROR", OutcomeUnknown, "lost before the reply"),
    1005: ErrorMeaning(
        "SLURM_PROTOCOL_VERSION_ERROR", NeedsOperator, "slurmrestd does not fit slurmctld"
    ),
    1007: ErrorMeaning(
        "SLURM_PROTOCOL_AUTHENTICATION_ERROR",
        NeedsOperator,
        "slurmctld does not take the token: expired, or signed with another key",
    ),
    1019: ErrorMeaning("SLURM_COMMUNICATIONS_REJECTED", RetryLater, "slurmctld is overloaded"),
    1025: ErrorMeaning("SLURM_SHUTTING_DOWN", OutcomeUnknown, "slurmctld stops"),
    1800: ErrorMeaning("SLURMCTLD_COMMUNICATIONS_CONNECTION_ERROR", Unreachable, "slurmctld is down"),
    1801: ErrorMeaning("SLURMCTLD_COMMUNICATIONS_SEND_ERROR", OutcomeUnknown, "lost while sending"),
    1802: ErrorMeaning(
        "SLURMCTLD_COMMUNICATIONS_RECEIVE_ERROR", OutcomeUnknown, "lost before the reply"
    ),
    1803: ErrorMeaning("SLURMCTLD_COMMUNICATIONS_SHUTDOWN_ERROR", OutcomeUnknown, "slurmctld stops"),
    1804: ErrorMeaning("SLURMCTLD_COMMUNICATIONS_BACKOFF", RetryLater, "slurmctld asks for a pause"),
    5003: ErrorMeaning("ESLURM_PROTOCOL_INCOMPLETE_PACKET", OutcomeUnknown, "lost before the reply"),
    5004: ErrorMeaning("SLURM_PROTOCOL_SOCKET_IMPL_TIMEOUT", OutcomeUnknown, "slurmctld did not answer"),
    5005: ErrorMeaning("SLURM_PROTOCOL_SOCKET_ZERO_BYTES_SENT", OutcomeUnknown, "lost while sending"),
    # authentication and permission
    2002: ErrorMeaning("ESLURM_ACCESS_DENIED", NeedsOperator, "only root or SlurmUser may do that"),
    2010: ErrorMeaning(
        "ESLURM_USER_ID_MISSING", NeedsOperator, "the token's user may not act for others"
    ),
    2017: ErrorMeaning(
        "ESLURM_INVALID_JOB_ID", NeedsOperator, "the token's user may not choose job ids"
    ),
    2186: ErrorMeaning("ESLURM_EXTERN_ONLY", NeedsOperator, "not for this kind of node"),
    6000: ErrorMeaning("ESLURM_AUTH_CRED_INVALID", NeedsOperator, "the token is not valid"),
    6001: ErrorMeaning("ESLURM_AUTH_EXPIRED", NeedsOperator, "the token expired"),
    6004: ErrorMeaning("ESLURM_AUTH_BADARG", NeedsOperator, "the token is not valid"),
    6010: ErrorMeaning("ESLURM_AUTH_NOBODY", NeedsOperator, "slurmctld cannot resolve the user"),
    9008: ErrorMeaning("ESLURM_REST_AUTH_FAIL", NeedsOperator, "slurmrestd takes no such token"),
    # not now
    2007: ErrorMeaning("ESLURM_MAX_JOB_COUNT", RetryLater, "MaxJobCount jobs exist already"),
    # Its disk is full, or was: 24.11 leaves the id's folder behind, and cannot make it again before
    # slurmctld's next start has swept it away.
    2019: ErrorMeaning("ESLURM_WRITING_TO_FILE", RetryLater, "slurmctld cannot write a job's files"),
    2020: ErrorMeaning("ESLURM_TRANSITION_STATE_NO_UPDATE", RetryLater, "the job is completing"),
    2027: ErrorMeaning("ESLURM_IN_STANDBY_MODE", RetryLater, "a backup controller takes over"),
    # One number for what may come later and, by a QOS with DenyOnLimit, for what never will. Of an
    # immediate allocation also for a limit on what runs: see rest.SlurmRest.allocate.
    2050: ErrorMeaning(
        "ESLURM_ACCOUNTING_POLICY", RetryLater, "a limit of the QOS or account on submissions"
    ),
    2059: ErrorMeaning("ESLURM_PORTS_BUSY", RetryLater, "no ports are free"),
    2074: ErrorMeaning("ESLURM_QOS_THRES", RetryLater, "the user's QOS usage is over its threshold"),
    2105: ErrorMeaning(
        "ESLURM_SUBMISSIONS_DISABLED", RetryLater, "an administrator disabled submissions"
    ),
    2131: ErrorMeaning(
        "ESLURM_IN_STANDBY_USE_BACKUP", RetryLater, "the other controller is the primary"
    ),
    7000: ErrorMeaning("ESLURM_DB_CONNECTION", RetryLater, "slurmdbd is not reached"),
    # an immediate allocation cannot start now; submit queues these with a reason instead
    2013: ErrorMeaning("ESLURM_NOT_TOP_PRIORITY", NoRoomNow, "a job of at least its priority waits"),
    2015: ErrorMeaning(
        "ESLURM_REQUESTED_PART_CONFIG_UNAVAILABLE", NoRoomNow, "the partition lacks it now"
    ),
    2016: ErrorMeaning("ESLURM_NODES_BUSY", NoRoomNow, "the nodes are busy"),
    2035: ErrorMeaning("ESLURM_FRAGMENTATION", NoRoomNow, "what is free is scattered"),
    2038: ErrorMeaning("ESLURM_DEPENDENCY", NoRoomNow, "it is held, or waits for another job"),
    2040: ErrorMeaning("ESLURM_LICENSES_UNAVAILABLE", NoRoomNow, "the licenses are taken"),
    2042: ErrorMeaning("ESLURM_JOB_HELD", NoRoomNow, "it is held"),
    2055: ErrorMeaning("ESLURM_RESERVATION_BUSY", NoRoomNow, "the reservation is full"),
    2056: ErrorMeaning("ESLURM_RESERVATION_NOT_USABLE", NoRoomNow, "the reservation is not active"),
    2068: ErrorMeaning("ESLURM_NODE_NOT_AVAIL", NoRoomNow, "a required node is down or drained"),
    2070: ErrorMeaning("ESLURM_PARTITION_NOT_AVAIL", NoRoomNow, "the partition does not start jobs"),
    2078: ErrorMeaning("ESLURM_CAN_NOT_START_IMMEDIATELY", NoRoomNow, "it cannot start now"),
    2101: ErrorMeaning("ESLURM_PARTITION_DOWN", NoRoomNow, "the partition is down"),
    2118: ErrorMeaning("ESLURM_RESERVATION_MAINT", NoRoomNow, "the nodes are in maintenance"),
    2125: ErrorMeaning("ESLURM_DEFER", NoRoomNow, "SchedulerParameters=defer: nothing starts at once"),
    # a job id of ours
    2011: ErrorMeaning("ESLURM_DUPLICATE_JOB_ID", JobIdTaken, "Slurm remembers a job of that id"),
    # of a cancel that names the job, and of nothing else that is asked here
    2172: ErrorMeaning("ESLURM_JOB_SIGNAL_FAILED", OtherJob, "the job of that id has another name"),
    # never, as it was asked
    2000: ErrorMeaning("ESLURM_INVALID_PARTITION_NAME", InvalidRequest, "no such partition"),
    2001: ErrorMeaning(
        "ESLURM_DEFAULT_PARTITION_NOT_SET", InvalidRequest, "no partition is the default"
    ),
    2003: ErrorMeaning("ESLURM_JOB_MISSING_REQUIRED_PARTITION_GROUP", InvalidRequest, "AllowGroups"),
    2004: ErrorMeaning(
        "ESLURM_REQUESTED_NODES_NOT_IN_PARTITION", InvalidRequest, "not in the partition"
    ),
    2005: ErrorMeaning("ESLURM_TOO_MANY_REQUESTED_CPUS", InvalidRequest, "more CPUs than a node has"),
    2006: ErrorMeaning("ESLURM_INVALID_NODE_COUNT", InvalidRequest, "more nodes than there are"),
    2012: ErrorMeaning("ESLURM_PATHNAME_TOO_LONG", InvalidRequest, "a path is too long"),
    2014: ErrorMeaning("ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE", InvalidRequest, "no node has that"),
    2018: ErrorMeaning("ESLURM_INVALID_NODE_NAME", InvalidRequest, "no such node"),
    2021: ErrorMeaning("ESLURM_ALREADY_DONE", InvalidRequest, "the job has ended"),
    2029: ErrorMeaning("ESLURM_INVALID_FEATURE", InvalidRequest, "no node has such a feature"),
    2036: ErrorMeaning("ESLURM_NOT_SUPPORTED", InvalidRequest, "this Slurm cannot do that"),
    2037: ErrorMeaning("ESLURM_DISABLED", InvalidRequest, "that is disabled"),
    2044: ErrorMeaning("ESLURM_INVALID_TASK_MEMORY", InvalidRequest, "more memory than allowed"),
    2045: ErrorMeaning(
        "ESLURM_INVALID_ACCOUNT", InvalidRequest, "no such account, or not for this user"
    ),
    2051: ErrorMeaning(
        "ESLURM_INVALID_TIME_LIMIT", InvalidRequest, "more time than the partition allows"
    ),
    2052: ErrorMeaning("ESLURM_RESERVATION_ACCESS", InvalidRequest, "the reservation is for others"),
    2053: ErrorMeaning("ESLURM_RESERVATION_INVALID", InvalidRequest, "no such reservation"),
    2057: ErrorMeaning("ESLURM_INVALID_WCKEY", InvalidRequest, "no such WCKey"),
    2063: ErrorMeaning("ESLURM_MISSING_WORK_DIR", InvalidRequest, "no working directory"),
    2066: ErrorMeaning("ESLURM_INVALID_QOS", InvalidRequest, "no such QOS, or not for this account"),
    2069: ErrorMeaning("ESLURM_INVALID_CPU_COUNT", InvalidRequest, "no such CPU count"),
    2072: ErrorMeaning("ESLURM_INVALID_GRES", InvalidRequest, "no such GRES"),
    2073: ErrorMeaning("ESLURM_JOB_NOT_PENDING", InvalidRequest, "the job does not wait any more"),
    2083: ErrorMeaning("ESLURM_JOB_STARTED", InvalidRequest, "the job has started"),
    2084: ErrorMeaning("ESLURM_JOB_FINISHED", InvalidRequest, "the job has ended"),
    2115: ErrorMeaning("ESLURM_INVALID_TRES", InvalidRequest, "no such TRES"),
    2119: ErrorMeaning("ESLURM_INVALID_GRES_TYPE", InvalidRequest, "no such GRES type"),
    2122: ErrorMeaning("ESLURM_UNSUPPORTED_GRES", InvalidRequest, "that GRES cannot be asked for so"),
    2130: ErrorMeaning(
        "ESLURM_PARTITION_ASSOC", InvalidRequest, "the partition is not for this account"
    ),
    2133: ErrorMeaning("ESLURM_INVALID_PREFER", InvalidRequest, "no node has the preferred feature"),
    2134: ErrorMeaning("ESLURM_INSUFFICIENT_GRES", InvalidRequest, "no node has that many"),
    2189: ErrorMeaning("ESLURM_INVALID_EXTERNAL_JOB", InvalidRequest, "not for an EXTERNAL_JOB"),
    9000: ErrorMeaning("ESLURM_REST_INVALID_QUERY", InvalidRequest, "slurmrestd did not understand it"),
    9001: ErrorMeaning("ESLURM_REST_FAIL_PARSING", InvalidRequest, "slurmrestd did not understand it"),
    9002: ErrorMeaning(
        "ESLURM_REST_INVALID_JOBS_DESC", InvalidRequest, "slurmrestd did not understand it"
    ),
    9207: ErrorMeaning("ESLURM_DATA_FLAGS_INVALID", InvalidRequest, "a value that is not in its list"),
}


_OUTAGES: Final = frozenset({2027, 2131})
"""Outside of the numbers of communication: another controller takes over, or has."""


def _is_outage(error: SlurmError) -> bool:
    """Tells whether an error is the answer to every call while slurmrestd or slurmctld does not work.
    An error that says nothing (`Unexplained`) may have another cause, too."""
    if not isinstance(error, RetryLater | OutcomeUnknown) or isinstance(error, Unreadable):
        return False
    number = error.number
    if number is None or isinstance(error, Unreachable | Unexplained):
        return True
    return number in _OUTAGES or _is_of_communication(number)


def _is_of_communication(number: int) -> bool:
    return number // 1000 in {1, 5}


def classify(number: int) -> type[SlurmError]:
    """The class for one of Slurm's error numbers.

    A number that the table lacks is judged by its range: communication (1000-1999, 5000-5999) may have
    been carried out; slurmctld's own errors (2000-2999) and what slurmrestd could not parse (9000-9999)
    are about the request; the rest is for a person.
    """
    if number in CAUSES:
        return CAUSES[number].error
    if _is_of_communication(number):
        return OutcomeUnknown
    match number // 1000:
        case 2 | 9:
            return InvalidRequest
        case _:
            return NeedsOperator
