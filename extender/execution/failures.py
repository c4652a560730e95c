"""Maps each error of Slurm and of kube-apiserver to a remedy, and to a message for the Pod's author. The
author gets the system's own message. Addresses, files and socket errors appear only in the extender's
log."""

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

# The first matching class counts, so a subclass stands before the base.
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
_DEFAULT_MESSAGES = {  # messages for errors without a message of Slurm
    Remedy.AGAIN: "Slurm does not answer",
    Remedy.LATER: "Slurm does not answer",
    Remedy.OPERATOR: "slurm-extender may not call Slurm, or cannot: see the log of slurm-extender",
}


def failure_of(error: Exception, about: Mapping[str, Any] | None = None) -> Failure:
    """Returns the Failure for an error. `about` has the log fields for an error that comes neither from
    Slurm nor from kube-apiserver."""
    if isinstance(error, SlurmError):
        remedy = next(r for kind, r in _SLURM_REMEDIES if isinstance(error, kind))
        whole = str(error)
        default = None if error.number else _DEFAULT_MESSAGES.get(remedy)
        message, codes = (error.words, error.codes) if default is None else (default, "")
        number, problem = error.number, error.common_problem
        return Failure(remedy, message, inner=whole, codes=codes, number=number, problem=problem)
    if isinstance(error, KubernetesError):
        remedy = next(r for kind, r in _KUBERNETES_REMEDIES if isinstance(error, kind))
        message = str(error) if error.status else "kube-apiserver does not answer"
        return Failure(remedy, message, OUTAGE, inner=str(error), problem=error.common_problem)
    log.error("an effect failed in an unforeseen way", **(about or {}), exc_info=error)
    message = "slurm-extender has failed: see the log of slurm-extender"
    return Failure(Remedy.AGAIN, message, system="Extender", inner=type(error).__name__)
