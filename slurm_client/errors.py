"""The errors of calls to Slurm, and a table of Slurm's error numbers.

Each class of errors stands for one next step of the caller. The adapter `rest` raises only these errors.
"""

import errno
from typing import Final, NamedTuple

OUTAGE: Final = "Slurm"
BAD_TOKEN: Final = "Slurm's token"  # noqa: S105 - no token
"""The names of two problems: an outage of slurmrestd or slurmctld, and a token that Slurm rejects."""


class SlurmError(Exception):
    """A failed call to Slurm. The subclass decides the caller's next step. `words` is the server's
    message.

    `number` is Slurm's error number (slurm_errno.h). `number`, `http_status` and `job_id` are None if
    the reply had none.
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
        self.words, self.number, self.http_status, self.job_id = words, number, http_status, job_id

    @property
    def common_problem(self) -> str | None:
        """Name of the problem because of which every call gets this error. None if the error concerns
        one call only."""
        return OUTAGE if _is_outage(self) else None

    @property
    def codes(self) -> str:
        """The numbers of the error: "Slurm error 2014, HTTP 422"; empty if there are none."""
        codes = [f"Slurm error {self.number}"] if self.number is not None else []
        if self.http_status is not None:
            codes.append(f"HTTP {self.http_status}")
        return ", ".join(codes)

    def __str__(self) -> str:
        return f"{self.words} ({self.codes})" if self.codes else self.words


class NoRoomNow(SlurmError):
    """Slurm rejected an immediate allocation, and queued nothing. Submit the job, or try the allocation
    again later, under the next id. The first id is used up, because Slurm may keep a FAILED record under
    this id for MinJobAge."""


class JobIdTaken(SlurmError):
    """Slurm already has, or had, a job with this id. Read that job to find out if it is the caller's own
    job from an earlier call."""


class OtherJob(SlurmError):
    """The job with this id does not have the name that the cancel request gives, so Slurm did not cancel
    the job. Read the job. Either its owner has renamed the job, or the id belongs to another job."""


class InvalidRequest(SlurmError):
    """Slurm can never carry out this request. Change the request, and inform its author. No job waits or
    runs. But Slurm may keep a FAILED record under the job id for MinJobAge, for example after error
    2014."""


class RetryLater(SlurmError):
    """Slurm rejects the request for now, for example because Slurm is busy or a limit on jobs is
    reached. Nothing was created. Repeat the request later."""


class Unreachable(RetryLater):
    """The client had no connection to slurmrestd, or slurmrestd had none to slurmctld. The request was
    not sent."""


class OutcomeUnknown(SlurmError):
    """Slurm may have carried out the request. Send the same request again, under the same id."""


class Unreadable(OutcomeUnknown):
    """slurmrestd's reply describes the job or node in a form that this client cannot read, so the state
    is not known. Read the job or node again, or continue without the state."""


class Unexplained(OutcomeUnknown):
    """Slurm's error gives no cause. Perhaps a plugin rejects the request, or slurmctld is down. Find out
    if Slurm has carried out the request. If Slurm has not, send the request again. If the same error
    comes again, Slurm rejects the request."""


class NeedsOperator(SlurmError):
    """Neither waiting nor another request helps, because the token, a permission or a setting is wrong.
    Inform a person."""


class BadToken(NeedsOperator):
    """No token exists, or Slurm rejects the token. Every call fails until another token exists."""

    @property
    def common_problem(self) -> str | None:
        return BAD_TOKEN


class ErrorMeaning(NamedTuple):
    """The meaning of one of Slurm's error numbers: its name in slurm_errno.h, the class of the error,
    and a cause."""

    name: str
    error: type[SlurmError]
    why: str


# The numbers come from slurm/slurm_errno.h of 26.05, and from errno.h. From errno.h, the table has
# EPERM, EAGAIN, and the errors of slurmrestd's connection to slurmctld. Other numbers of errno.h may
# come from a job_submit plugin.
_MEANINGS: Final[dict[type[SlurmError], dict[int, tuple[str, str]]]] = {
    Unexplained: {
        # job_submit.lua's `return slurm.ERROR`. If job_submit.lua gives a text to slurm.log_user,
        # slurmrestd logs the text. The reply has the text only if Slurm accepts the job (24.11.5,
        # 26.05.5).
        -1: (
            "SLURM_ERROR",
            "perhaps a plugin of Slurm's refuses it (job_submit.lua): its words are in slurmrestd's log",
        ),
        # The class is not NeedsOperator, because 26.05.5 also answers a DELETE with this number (HTTP
        # 403) while slurmctld is down.
        1: ("EPERM", "slurmctld is down, the job is another user's, or a plugin refuses it"),
    },
    Unreachable: {
        1001: ("SLURM_COMMUNICATIONS_CONNECTION_ERROR", "slurmctld was not reached"),
        1800: ("SLURMCTLD_COMMUNICATIONS_CONNECTION_ERROR", "slurmctld is down"),
        errno.ECONNREFUSED: ("ECONNREFUSED", "slurmctld does not listen"),
        errno.EHOSTUNREACH: ("EHOSTUNREACH", "slurmctld's host was not reached"),
    },
    OutcomeUnknown: {
        # 26.05.5 answers with this number if slurmctld is killed while slurmctld handles the request.
        errno.ECONNRESET: ("ECONNRESET", "lost before the reply"),
        errno.EPIPE: ("EPIPE", "lost while sending"),
        errno.ETIMEDOUT: ("ETIMEDOUT", "slurmctld did not answer"),
        1000: ("SLURM_UNEXPECTED_MSG_ERROR", "the reply was not understood"),
        1002: ("SLURM_COMMUNICATIONS_SEND_ERROR", "lost while sending"),
        1003: ("SLURM_COMMUNICATIONS_RECEIVE_ERROR", "lost before the reply"),
        1004: ("SLURM_COMMUNICATIONS_SHUTDOWN_ERROR", "lost before the reply"),
        1025: ("SLURM_SHUTTING_DOWN", "slurmctld stops"),
        1801: ("SLURMCTLD_COMMUNICATIONS_SEND_ERROR", "lost while sending"),
        1802: ("SLURMCTLD_COMMUNICATIONS_RECEIVE_ERROR", "lost before the reply"),
        1803: ("SLURMCTLD_COMMUNICATIONS_SHUTDOWN_ERROR", "slurmctld stops"),
        5003: ("ESLURM_PROTOCOL_INCOMPLETE_PACKET", "lost before the reply"),
        5004: ("SLURM_PROTOCOL_SOCKET_IMPL_TIMEOUT", "slurmctld did not answer"),
        5005: ("SLURM_PROTOCOL_SOCKET_ZERO_BYTES_SENT", "lost while sending"),
    },
    RetryLater: {
        11: ("EAGAIN", "MaxJobCount is reached (before 25.11), or slurmctld is busy"),
        1019: ("SLURM_COMMUNICATIONS_REJECTED", "slurmctld is overloaded"),
        1804: ("SLURMCTLD_COMMUNICATIONS_BACKOFF", "slurmctld asks for a pause"),
        2007: ("ESLURM_MAX_JOB_COUNT", "MaxJobCount jobs exist already"),
        # slurmctld's disk is full now, or was full earlier. A full disk makes 24.11 leave the folder of
        # the job id behind. 24.11 then cannot create this folder again, until the next start of
        # slurmctld removes it.
        2019: ("ESLURM_WRITING_TO_FILE", "slurmctld cannot write a job's files"),
        2020: ("ESLURM_TRANSITION_STATE_NO_UPDATE", "the job is completing"),
        2027: ("ESLURM_IN_STANDBY_MODE", "a backup controller takes over"),
        # This number has two meanings. Slurm may accept the job later; or, because of a QOS with
        # DenyOnLimit, Slurm will never accept the job. For an immediate allocation, the number can also
        # mean a limit on running jobs: see rest.SlurmRest._allocate.
        2050: ("ESLURM_ACCOUNTING_POLICY", "a limit of the QOS or account on submissions"),
        2059: ("ESLURM_PORTS_BUSY", "no ports are free"),
        2074: ("ESLURM_QOS_THRES", "the user's QOS usage is over its threshold"),
        2105: ("ESLURM_SUBMISSIONS_DISABLED", "an administrator disabled submissions"),
        2131: ("ESLURM_IN_STANDBY_USE_BACKUP", "the other controller is the primary"),
        7000: ("ESLURM_DB_CONNECTION", "slurmdbd is not reached"),
    },
    NeedsOperator: {
        1005: ("SLURM_PROTOCOL_VERSION_ERROR", "slurmrestd does not fit slurmctld"),
        1007: (
            "SLURM_PROTOCOL_AUTHENTICATION_ERROR",
            "slurmctld does not take the token: expired, or signed with another key",
        ),
        2002: ("ESLURM_ACCESS_DENIED", "only root or SlurmUser may do that"),
        2010: ("ESLURM_USER_ID_MISSING", "the token's user may not act for others"),
        2017: ("ESLURM_INVALID_JOB_ID", "the token's user may not choose job ids"),
        2186: ("ESLURM_EXTERN_ONLY", "not for this kind of node"),
        6000: ("ESLURM_AUTH_CRED_INVALID", "the token is not valid"),
        6001: ("ESLURM_AUTH_EXPIRED", "the token expired"),
        6004: ("ESLURM_AUTH_BADARG", "the token is not valid"),
        6010: ("ESLURM_AUTH_NOBODY", "slurmctld cannot resolve the user"),
        9008: ("ESLURM_REST_AUTH_FAIL", "slurmrestd takes no such token"),
    },
    # An immediate allocation cannot start now. If the same job is submitted instead, Slurm queues the
    # job with a reason.
    NoRoomNow: {
        2013: ("ESLURM_NOT_TOP_PRIORITY", "a job of at least its priority waits"),
        2015: ("ESLURM_REQUESTED_PART_CONFIG_UNAVAILABLE", "the partition lacks it now"),
        2016: ("ESLURM_NODES_BUSY", "the nodes are busy"),
        2035: ("ESLURM_FRAGMENTATION", "what is free is scattered"),
        2038: ("ESLURM_DEPENDENCY", "it is held, or waits for another job"),
        2040: ("ESLURM_LICENSES_UNAVAILABLE", "the licenses are taken"),
        2042: ("ESLURM_JOB_HELD", "it is held"),
        2055: ("ESLURM_RESERVATION_BUSY", "the reservation is full"),
        2056: ("ESLURM_RESERVATION_NOT_USABLE", "the reservation is not active"),
        2068: ("ESLURM_NODE_NOT_AVAIL", "a required node is down or drained"),
        2070: ("ESLURM_PARTITION_NOT_AVAIL", "the partition does not start jobs"),
        2078: ("ESLURM_CAN_NOT_START_IMMEDIATELY", "it cannot start now"),
        2101: ("ESLURM_PARTITION_DOWN", "the partition is down"),
        2118: ("ESLURM_RESERVATION_MAINT", "the nodes are in maintenance"),
        2125: ("ESLURM_DEFER", "SchedulerParameters=defer: nothing starts at once"),
    },
    JobIdTaken: {2011: ("ESLURM_DUPLICATE_JOB_ID", "Slurm remembers a job of that id")},
    # This client gets this error only for a cancel request that gives the name of the job.
    OtherJob: {2172: ("ESLURM_JOB_SIGNAL_FAILED", "the job of that id has another name")},
    InvalidRequest: {
        2000: ("ESLURM_INVALID_PARTITION_NAME", "no such partition"),
        2001: ("ESLURM_DEFAULT_PARTITION_NOT_SET", "no partition is the default"),
        2003: ("ESLURM_JOB_MISSING_REQUIRED_PARTITION_GROUP", "AllowGroups"),
        2004: ("ESLURM_REQUESTED_NODES_NOT_IN_PARTITION", "not in the partition"),
        2005: ("ESLURM_TOO_MANY_REQUESTED_CPUS", "more CPUs than a node has"),
        2006: ("ESLURM_INVALID_NODE_COUNT", "more nodes than there are"),
        2012: ("ESLURM_PATHNAME_TOO_LONG", "a path is too long"),
        2014: ("ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE", "no node has that"),
        2018: ("ESLURM_INVALID_NODE_NAME", "no such node"),
        2021: ("ESLURM_ALREADY_DONE", "the job has ended"),
        2029: ("ESLURM_INVALID_FEATURE", "no node has such a feature"),
        2036: ("ESLURM_NOT_SUPPORTED", "this Slurm cannot do that"),
        2037: ("ESLURM_DISABLED", "that is disabled"),
        2044: ("ESLURM_INVALID_TASK_MEMORY", "more memory than allowed"),
        2045: ("ESLURM_INVALID_ACCOUNT", "no such account, or not for this user"),
        2051: ("ESLURM_INVALID_TIME_LIMIT", "more time than the partition allows"),
        2052: ("ESLURM_RESERVATION_ACCESS", "the reservation is for others"),
        2053: ("ESLURM_RESERVATION_INVALID", "no such reservation"),
        2057: ("ESLURM_INVALID_WCKEY", "no such WCKey"),
        2063: ("ESLURM_MISSING_WORK_DIR", "no working directory"),
        2066: ("ESLURM_INVALID_QOS", "no such QOS, or not for this account"),
        2069: ("ESLURM_INVALID_CPU_COUNT", "no such CPU count"),
        2072: ("ESLURM_INVALID_GRES", "no such GRES"),
        2073: ("ESLURM_JOB_NOT_PENDING", "the job does not wait any more"),
        2083: ("ESLURM_JOB_STARTED", "the job has started"),
        2084: ("ESLURM_JOB_FINISHED", "the job has ended"),
        2115: ("ESLURM_INVALID_TRES", "no such TRES"),
        2119: ("ESLURM_INVALID_GRES_TYPE", "no such GRES type"),
        2122: ("ESLURM_UNSUPPORTED_GRES", "that GRES cannot be asked for so"),
        2130: ("ESLURM_PARTITION_ASSOC", "the partition is not for this account"),
        2133: ("ESLURM_INVALID_PREFER", "no node has the preferred feature"),
        2134: ("ESLURM_INSUFFICIENT_GRES", "no node has that many"),
        2189: ("ESLURM_INVALID_EXTERNAL_JOB", "not for an EXTERNAL_JOB"),
        9000: ("ESLURM_REST_INVALID_QUERY", "slurmrestd did not understand it"),
        9001: ("ESLURM_REST_FAIL_PARSING", "slurmrestd did not understand it"),
        9002: ("ESLURM_REST_INVALID_JOBS_DESC", "slurmrestd did not understand it"),
        9207: ("ESLURM_DATA_FLAGS_INVALID", "a value that is not in its list"),
    },
}
CAUSES: Final = {
    number: ErrorMeaning(name, error, why)
    for error, meanings in _MEANINGS.items()
    for number, (name, why) in meanings.items()
}
"""The meaning of each of Slurm's error numbers."""

_OUTAGES: Final = frozenset({2027, 2131, errno.ECONNRESET, errno.EPIPE, errno.ETIMEDOUT})
"""Numbers of two outages: another controller takes over, or slurmrestd has lost the connection to
slurmctld. These numbers are outside of Slurm's ranges for communication errors."""


def _is_outage(error: SlurmError) -> bool:
    """Returns True for an error that every call gets while slurmrestd or slurmctld does not work. Also
    returns True for an `Unexplained` error, although this error may have another cause."""
    if not isinstance(error, RetryLater | OutcomeUnknown) or isinstance(error, Unreadable):
        return False
    number = error.number
    if number is None or isinstance(error, Unreachable | Unexplained):
        return True
    return number in _OUTAGES or _is_of_communication(number)


def _is_of_communication(number: int) -> bool:
    return number // 1000 in {1, 5}


def classify(number: int) -> type[SlurmError]:
    """Returns the class for one of Slurm's error numbers.

    If the table lacks the number, its range decides. After a communication error (1000-1999, 5000-5999),
    Slurm may have carried out the request. slurmctld's own errors (2000-2999) and slurmrestd's parsing
    errors (9000-9999) are about the request. All other errors need a person.
    """
    if number in CAUSES:
        return CAUSES[number].error
    if _is_of_communication(number):
        return OutcomeUnknown
    return InvalidRequest if number // 1000 in {2, 9} else NeedsOperator
