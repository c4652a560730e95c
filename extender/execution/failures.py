"""The errors of both systems: the remedy for each, and the words for a Pod's author.

Where a system itself said what is wrong, the author reads that. Details of how the extender reaches the
systems (addresses, files, the kernel's words about a socket) are for its log.
"""

from collections.abc import Mapping
from typing import Any

import structlog

from extender.record.events import Failure, Remedy
from kubernetes_client.errors import OUTAGE, Conflict, KubernetesError, NotFound, Unavailable
from slurm_client.errors import (
    InvalidRequest,
    JobIdTaken,
    NeedsOperator,
    NoRoomNow,
    OtherJob,
    RetryLater,
    SlurmError,
    Unexplained,
    Unreachable,
)

log = structlog.get_logger()

# The first class that fits wins, so a subclass stands before its base.
_SLURM_REMEDIES: tuple[tuple[type[SlurmError], Remedy], ...] = (
    (NoRoomNow, Remedy.NO_ROOM),
    (JobIdTaken, Remedy.ID_TAKEN),
    (OtherJob, Remedy.OTHER_JOB),
    (InvalidRequest, Remedy.CHANGE),
    (NeedsOperator, Remedy.OPERATOR),
    (Unreachable, Remedy.AGAIN),
    (RetryLater, Remedy.LATER),
    (Unexplained, Remedy.UNEXPLAINED),
    (SlurmError, Remedy.AGAIN),
)
_KUBERNETES_REMEDIES: tuple[tuple[type[KubernetesError], Remedy], ...] = (
    (Conflict, Remedy.FRESHER),
    (NotFound, Remedy.GONE),
    (Unavailable, Remedy.AGAIN),
    (KubernetesError, Remedy.OPERATOR),
)
_UNSAID = {
    Remedy.AGAIN: "Slurm does not answer",
    Remedy.LATER: "Slurm does not answer",
    Remedy.OPERATOR: "slurm-extender may not ask Slurm, or cannot: its log says why",
}
"""The words for the author where Slurm itself said nothing."""


def failure_of(error: Exception, about: Mapping[str, Any] | None = None) -> Failure:
    """Returns the Failure for an error of either system. `about`: the log fields for any other error."""
    if isinstance(error, SlurmError):
        remedy = next(r for kind, r in _SLURM_REMEDIES if isinstance(error, kind))
        whole = str(error)
        unsaid = None if error.number else _UNSAID.get(remedy)
        told, codes = (error.words, error.codes) if unsaid is None else (unsaid, "")
        number, trouble = error.number, error.common_trouble
        return Failure(remedy, told, inner=whole, codes=codes, number=number, trouble=trouble)
    if isinstance(error, KubernetesError):
        remedy = next(r for kind, r in _KUBERNETES_REMEDIES if isinstance(error, kind))
        told = str(error) if error.status else "kube-apiserver does not answer"
        return Failure(remedy, told, OUTAGE, inner=str(error), trouble=error.common_trouble)
    log.error("an effect failed in an unforeseen way", **(about or {}), exc_info=error)
    told = "slurm-extender has failed, and its log says why"
    return Failure(Remedy.AGAIN, told, system="Extender", inner=type(error).__name__)
