"""Why Slurm says that a job waits: does it compete for nodes, or does its owner hold it up?

The words are those of Slurm's src/common/job_state_reason.c (24.11 to 26.05).
"""

from __future__ import annotations

_LIMITS = ("Assoc", "QOS")
"""How the words for limits of an association or a QOS begin: AssocMaxJobsLimit, AssocGrpCpuLimit,
AssociationJobLimit, QOSMaxJobsPerUserLimit, QOSGrpGRES, QOSUsageThreshold, QOSNotAllowed ..."""
_PER_ACCOUNT = "PerAccount"
"""How those for a QOS's limits of each account end: MaxJobsPerAccount, MaxCpuPerAccount ..."""
_HELD_UP = frozenset(
    {
        "JobHeldUser",
        "JobHeldAdmin",
        "JobHoldMaxRequeue",
        "BeginTime",
        "Dependency",
        "DependencyNeverSatisfied",
        "Reservation",  # the reservation that it names has not begun
        "ReservationDeleted",
        "ReservationInvalid",
        "AccountNotAllowed",
        "AccountingPolicy",
        "InvalidAccount",
        "InvalidQOS",
        "BadConstraints",
        "PartitionTimeLimit",
        "MaxMemPerLimit",
    }
)


def waits_for_its_owner(reason: str) -> bool:
    """Tells whether a job with this pending reason could not start on an idle cluster either: it waits
    for a limit of its owner, for a person, or for a time. Such a job takes nothing from others. Other
    jobs (Priority, Resources, Licenses, a word that is not known) compete."""
    return reason in _HELD_UP or reason.startswith(_LIMITS) or reason.endswith(_PER_ACCOUNT)
