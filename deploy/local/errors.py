"""What can go wrong with a local cluster, sorted by what the caller should do."""

from collections.abc import Sequence


class ClusterError(Exception):
    """The cluster could not do what was asked; the message says why and where to look."""


class AlreadyRunningError(ClusterError):
    """A cluster runs in this directory: attach to it, or take it down first."""


class GuestGoneError(ClusterError):
    """The virtual machine ended before the cluster served: start the cluster again."""


class NotObserved(Exception):
    """What a story was to show was not seen, or not in time; the message says what, for the summary."""


class MissingPrerequisitesError(ClusterError):
    """This machine lacks something; each entry of `missing` says what, and how to get it."""

    def __init__(self, missing: Sequence[str]) -> None:
        self.missing = tuple(missing)
        super().__init__("\n".join(self.missing))
