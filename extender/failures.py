"""Errors of either system: what follows from them, and what is told of them to a Pod's author.

Where a system itself said what is wrong, its author reads that. What only tells how the extender reaches
the systems (addresses, files, what the kernel says of a socket) is for its log.
"""

from __future__ import annotations

import structlog

from extender.kubernetes_api import Conflict, KubernetesError, NotFound, Unavailable
from extender.placement.events import Failure, Remedy
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
"""What is told where Slurm itself said nothing."""


def failure_of(error: Exception) -> Failure:
    """Returns an error of either system as the ledger knows it."""
    if isinstance(error, SlurmError):
        remedy = next(r for kind, r in _SLURM_REMEDIES if isinstance(error, kind))
        whole = str(error)
        return Failure(remedy, whole if error.number else _UNSAID.get(remedy, whole), inner=whole)
    if isinstance(error, KubernetesError):
        remedy = next(r for kind, r in _KUBERNETES_REMEDIES if isinstance(error, kind))
        told = str(error) if error.status else "kube-apiserver does not answer"
        return Failure(remedy, told, system="Kubernetes", inner=str(error))
    log.error("an effect failed in an unforeseen way", exc_info=error)
    told = "slurm-extender has failed, and its log says why"
    return Failure(Remedy.AGAIN, told, system="Extender", inner=type(error).__name__)
