"""The mapping from slurmrestd's replies to errors.

Errors come as JSON with Slurm's numbers, as JSON without, or as text/plain, under HTTP statuses that
differ between releases (24.11: 500 for all, 26.05: 422, 404, 511 ...). So Slurm's number decides
when there is one, and the status only otherwise.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from slurm_client.errors import (
    CAUSES,
    BadToken,
    NeedsOperator,
    OutcomeUnknown,
    RetryLater,
    SlurmError,
    Unexplained,
    Unreachable,
    classify,
)

PROTOCOL_AUTHENTICATION_ERROR: Final = 1007
_WORDS_KEPT: Final = 500
_UNSPECIFIED: Final = 500
_NOT_MODIFIED: Final = 304
"""An answer without a body, to a request that named a time."""
_SLURM_ERROR = -1
# "Unspecified error", "Operation not permitted", "Resource temporarily unavailable"
_SAYS_TOO_LITTLE = {_SLURM_ERROR, 1, 11}
_NOT_SAID = {0, _SLURM_ERROR}  # SLURM_SUCCESS: no number at all


def problem(status: int, content: bytes, parsed: Mapping[str, Any]) -> SlurmError | None:
    """Returns the error that a reply stands for; None when it is no error."""
    listed = parsed.get("errors") or ()
    errors = [error for error in listed if isinstance(error, dict)] if isinstance(listed, list) else []
    for error in errors:
        number = error.get("error_number")
        if isinstance(number, int) and number not in _NOT_SAID:
            return make(classify(number), _words(error, number), number, status, parsed)
    if (200 <= status < 300 or status == _NOT_MODIFIED) and not listed:
        return None
    if not parsed:
        return make(by_status(status), _plain(content), None, status, parsed)
    first = errors[0] if errors else {}
    if status == _UNSPECIFIED and first.get("error_number") == _SLURM_ERROR:
        return make(Unexplained, _words(first, _SLURM_ERROR), None, status, parsed)
    return make(by_status(status), _words(first), None, status, parsed)


def by_status(status: int) -> type[SlurmError]:
    """The class of a reply without a Slurm error number."""
    if status in {429, 503}:
        return RetryLater
    if 400 <= status < 500 or status == 511:
        # Slurm numbers what is wrong with a request. Without a number it is the way to it that is wrong:
        # a token, a proxy, an API version that the server does not have any more.
        return NeedsOperator
    return OutcomeUnknown


def not_responding(statuses: Sequence[str]) -> SlurmError:
    """Returns the error for slurmrestd's report on each slurmctld in GET ping/, when none of them
    responds."""
    words = "; ".join(filter(None, statuses)) or "no slurmctld responds"
    if any("authentication" in status.lower() for status in statuses):
        return BadToken(words, number=PROTOCOL_AUTHENTICATION_ERROR)
    return Unreachable(words)


def make(
    kind: type[SlurmError], words: str, number: int | None, status: int | None, parsed: Mapping[str, Any]
) -> SlurmError:
    job_id = parsed.get("job_id")
    told = job_id if isinstance(job_id, int) and job_id > 0 else None
    return kind(words, number=number, http_status=status, job_id=told)


def _words(error: Mapping[str, Any], number: int = 0) -> str:
    said = [str(error[key]) for key in ("description", "error") if error.get(key)]
    if number in _SAYS_TOO_LITTLE:
        said.append(CAUSES[number].why)
    return ": ".join(dict.fromkeys(said)) or "no description"


def _plain(content: bytes) -> str:
    return content[:_WORDS_KEPT].decode("utf-8", errors="replace").strip() or "an empty reply"
