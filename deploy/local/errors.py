"""Errors of a local cluster. Each class tells the caller what to do next."""

from collections.abc import Sequence


class ClusterError(Exception):
    """The cluster could not serve the caller's request. The message names the reason and where to
    look."""


class AlreadyRunningError(ClusterError):
    """A cluster already runs in this directory. Attach to the cluster, or stop it first."""


class GuestGoneError(ClusterError):
    """The virtual machine ended before the cluster served. Start the cluster again."""


class NotObserved(Exception):
    """An expected event of a demo's step did not happen in time. The message names the event, for the
    summary."""


class MissingPrerequisitesError(ClusterError):
    """This machine lacks a prerequisite. Each entry of `missing` names a prerequisite and how to
    get it."""

    def __init__(self, missing: Sequence[str]) -> None:
        self.missing = tuple(missing)
        super().__init__("\n".join(self.missing))
