"""Maps slurmrestd's replies to errors.

An error comes as JSON, with or without Slurm's error number, or as text/plain. If the reply has Slurm's
number, the number decides the class of the error. If not, the HTTP status decides. Releases of Slurm use
different statuses (24.11: 500 for all errors, 26.05: 422, 404, 511 ...).
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
"""HTTP status of the reply, without a body, if nothing has changed since the requested time."""
_SLURM_ERROR = -1
# Numbers whose texts give no cause: "Unspecified error", "Operation not permitted", "Resource
# temporarily unavailable".
_SAYS_TOO_LITTLE = {_SLURM_ERROR, 1, 11}
_NOT_SAID = {0, _SLURM_ERROR}  # 0 is SLURM_SUCCESS


def problem(status: int, content: bytes, parsed: Mapping[str, Any]) -> SlurmError | None:
    """Returns the error in a reply; None for a reply without an error."""
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
    """Returns the class for an error without Slurm's number. Slurm's errors about the content of a
    request have a number. So here the token, a proxy or the API version may be wrong."""
    if status in {429, 503}:
        return RetryLater
    if 400 <= status < 500 or status == 511:
        return NeedsOperator
    return OutcomeUnknown


def not_responding(statuses: Sequence[str]) -> SlurmError:
    """Returns the error if no slurmctld responds. `statuses` come from the reply to GET ping/, one for
    each slurmctld."""
    words = "; ".join(filter(None, statuses)) or "no slurmctld responds"
    if any("authentication" in status.lower() for status in statuses):
        return BadToken(words, number=PROTOCOL_AUTHENTICATION_ERROR)
    return Unreachable(words)


def make(
    kind: type[SlurmError], words: str, number: int | None, status: int | None, parsed: Mapping[str, Any]
) -> SlurmError:
    job_id = parsed.get("job_id")
    known_id = job_id if isinstance(job_id, int) and job_id > 0 else None
    return kind(words, number=number, http_status=status, job_id=known_id)


def _words(error: Mapping[str, Any], number: int = 0) -> str:
    texts = [str(error[key]) for key in ("description", "error") if error.get(key)]
    if number in _SAYS_TOO_LITTLE:
        texts.append(CAUSES[number].why)
    return ": ".join(dict.fromkeys(texts)) or "no description"


def _plain(content: bytes) -> str:
    return content[:_WORDS_KEPT].decode("utf-8", errors="replace").strip() or "an empty reply"
