"""Pending reasons of jobs: one table of Slurm's words, each with a sentence for users.

The words and their meanings come from Slurm's src/common/job_state_reason.c (24.11 to 26.05), slurm.h
and slurm.schedmd.com/job_reason_codes.html. The page docs/waiting.md shows the same table
(`extender.pages`).
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from wellknown.names import Reason


class PendingReason(NamedTuple):
    """One row of the table."""

    name: str
    """Slurm's word."""
    sentence: str
    """Why the job waits; "it" is the job. The sentence begins in lower case and has no full stop."""
    of_its_owner: bool = False
    """True if the job could not start on an idle cluster either, because the job waits for a limit of
    its owner, for a person, or for a time. Such a job takes nothing from other jobs."""


_THINGS = {
    "CPU": ("CPUs", "CPU minutes"),
    "Memory": ("memory", "memory minutes"),
    "Node": ("nodes", "node minutes"),
    "GRES": ("GRES", "GRES minutes"),
    "License": ("licenses", "license minutes"),
    "BB": ("burst buffer space", "burst buffer minutes"),
    "Energy": ("energy", "energy minutes"),
    "Billing": ("billing units", "billing minutes"),
    "Unknown": ("of another resource", "minutes of another resource"),
}
"""Resources that Slurm's limits count (TRES), in the usual spelling, each with words for the amount and
the time."""


def _limit(
    pattern: str, sentence: str, but: Mapping[str, str] = MappingProxyType({})
) -> Iterator[PendingReason]:
    """Yields the rows of one limit: Slurm has a word for each counted resource. `but` has the words with
    another spelling, and an empty text for a missing word."""
    for thing, (what, minutes) in _THINGS.items():
        if name := but.get(thing, pattern.format(thing)):
            yield PendingReason(name, sentence.format(what=what, minutes=minutes), of_its_owner=True)


_COMPETING = (
    ("None", "Slurm has not looked at it yet"),
    ("Resources", "all fitting nodes are in use"),
    ("Priority", "other jobs of its partition come before it"),
    ("ReqNodeNotAvail", "nodes that it could use are out of service, or reserved for others"),
    ("Constraints", "no node with the features that it asks for is in service"),
    ("NodeDown", "a node that it needs is down"),
    ("FrontEndDown", "the front end that it needs is down"),
    ("MaxPoweredUpNodes", "as many nodes are powered up as may be"),
    ("Licenses", "the licenses that it asks for are in use"),
    ("BurstBufferResources", "there is not enough burst buffer space for it now"),
    ("BurstBufferStageIn", "its files are being copied into its burst buffer"),
    ("BurstBufferOperation", "an operation on its burst buffer has failed"),
    ("NvidiaImexChannels", "all NVIDIA IMEX channels are in use"),
    ("MpiPortsBusy", "all ports that are reserved for MPI are in use"),
    ("PartitionDown", "its partition starts no jobs now (its State is DOWN or DRAIN)"),
    ("PartitionInactive", "its partition takes and starts no jobs now (its State is INACTIVE)"),
    ("PartitionConfig", "the configuration of its partition does not let it start"),
    (
        "PartitionNodeLimit",
        "its partition does not allow so many nodes, or nodes that it requires are down",
    ),
    ("SchedDefer", "Slurm looks for nodes a little after a job has come"),
    ("Prolog", "the Prolog of its node runs"),
    ("Cleaning", "Slurm still cleans up after its last run"),
    ("JobArrayTaskLimit", "as many tasks of its array run as may"),
    ("FedJobLock", "the clusters of a federation have not agreed yet who starts it"),
    ("DeadLine", "it cannot end before its deadline any more"),
    ("SystemFailure", "Slurm itself has failed: its log says why"),
    ("JobLaunchFailure", "it could not be launched"),
    ("NonZeroExitCode", "it has ended with an exit code other than 0"),
    ("RaisedSignal", "it has ended by a signal"),
    ("OutOfMemory", "it has used more memory than it had"),
    ("TimeLimit", "it has reached its time limit"),
    ("InactiveLimit", "it has reached Slurm's InactiveLimit"),
)
"""Reasons shared with other jobs, and ends of jobs, which a requeued job may still show."""

_OF_ITS_OWNER = (
    ("JobHeldUser", "it is held in the name of its Slurm user, until somebody releases it"),
    ("JobHeldAdmin", "an admin of Slurm, or a job_submit plugin, holds it until an admin releases it"),
    ("JobHoldMaxRequeue", "it was requeued too often, and is held until an admin releases it"),
    ("BeginTime", "it may not start before its begin time"),
    ("Dependency", "a job that it depends on has not ended"),
    ("DependencyNeverSatisfied", "what it depends on cannot come any more"),
    ("Reservation", "its reservation has not begun, or all of the reservation's nodes are in use"),
    ("ReservationDeleted", "its reservation was deleted"),
    ("ReservationInvalid", "it cannot use its reservation (any more)"),
    ("AccountNotAllowed", "its partition does not allow its account"),
    ("QOSNotAllowed", "its association or its partition does not allow its QOS"),
    ("InvalidAccount", "its user has no part in its account (any more)"),
    ("InvalidQOS", "its association may not use its QOS (any more), or there is no such QOS"),
    ("AccountingPolicy", "a limit of its association or its QOS is reached"),
    ("BadConstraints", "no node of its partition can ever give what it asks for"),
    ("PartitionTimeLimit", "its time limit is longer than its partition allows"),
    ("MaxMemPerLimit", "it asks for more memory than MaxMemPerCPU or MaxMemPerNode allows"),
    ("AssociationJobLimit", "its association has as many jobs as it may have"),
    ("AssociationResourceLimit", "its association has all the resources that it may have"),
    ("AssociationTimeLimit", "its association has used up the time that it may use"),
    ("AssocGrpJobsLimit", "by GrpJobs, no more jobs of its association may run at a time"),
    ("AssocGrpSubmitJobsLimit", "by GrpSubmitJobs, its association may not have more jobs at a time"),
    ("AssocGrpWallLimit", "by GrpWall, its association has used up its time"),
    ("AssocMaxJobsLimit", "by MaxJobs, no more jobs of its association may run at a time"),
    ("AssocMaxSubmitJobLimit", "by MaxSubmitJobs, its association may not have more jobs at a time"),
    (
        "AssocMaxWallDurationPerJobLimit",
        "its time limit is longer than MaxWall of its association allows",
    ),
    ("QOSJobLimit", "its QOS has as many jobs as it may have"),
    ("QOSResourceLimit", "its QOS has all the resources that it may have"),
    ("QOSTimeLimit", "its QOS has used up the time that it may use"),
    ("QOSUsageThreshold", "the fair share of its association is below UsageThreshold of its QOS"),
    ("QOSGrpJobsLimit", "by GrpJobs, no more jobs of its QOS may run at a time"),
    ("QOSGrpSubmitJobsLimit", "by GrpSubmitJobs, its QOS may not have more jobs at a time"),
    ("QOSGrpWallLimit", "by GrpWall, its QOS has used up its time"),
    ("QOSMaxWallDurationPerJobLimit", "its time limit is longer than MaxWall of its QOS allows"),
    (
        "QOSMaxJobsPerUserLimit",
        "by MaxJobsPerUser of its QOS, no more jobs of its user may run at a time",
    ),
    ("QOSMaxSubmitJobPerUserLimit", "by MaxSubmitJobsPerUser of its QOS, its user has enough jobs"),
    (
        "MaxJobsPerAccount",
        "by MaxJobsPerAccount of its QOS, no more jobs of its account may run at a time",
    ),
    ("MaxSubmitJobsPerAccount", "by MaxSubmitJobsPerAccount of its QOS, its account has enough jobs"),
)

_LIMITS = (
    *_limit(
        "AssocGrp{}",
        "by GrpTRES, its association may not have more {what} at a time",
        {"CPU": "AssocGrpCpuLimit", "Memory": "AssocGrpMemLimit", "Node": "AssocGrpNodeLimit"},
    ),
    *_limit(
        "AssocGrp{}Minutes",
        "by GrpTRESMins, its association has used up its {minutes}",
        {"CPU": "AssocGrpCPUMinutesLimit", "Memory": "AssocGrpMemMinutes"},
    ),
    *_limit(
        "AssocGrp{}RunMinutes",
        "by GrpTRESRunMins, jobs of its association that run have all of its {minutes}",
        {"CPU": "AssocGrpCPURunMinutesLimit", "Memory": "AssocGrpMemRunMinutes"},
    ),
    *_limit(
        "AssocMax{}PerJob",
        "it asks for more {what} than MaxTRES of its association allows",
        {
            "CPU": "AssocMaxCpuPerJobLimit",
            "Memory": "AssocMaxMemPerJob",
            "Node": "AssocMaxNodePerJobLimit",
        },
    ),
    *_limit(
        "AssocMax{}PerNode",
        "it asks for more {what} on a node than MaxTRESPerNode of its association allows",
        {"CPU": "AssocMaxCpuPerNode", "Memory": "AssocMaxMemPerNode", "Node": "", "License": ""},
    ),
    *_limit(
        "AssocMax{}MinutesPerJob",
        "until its time limit it would use more {minutes} than MaxTRESMins of its association allows",
        {"CPU": "AssocMaxCpuMinutesPerJobLimit", "Memory": "AssocMaxMemMinutesPerJob"},
    ),
    *_limit(
        "QOSGrp{}",
        "by GrpTRES, its QOS may not have more {what} at a time",
        {"CPU": "QOSGrpCpuLimit", "Memory": "QOSGrpMemLimit", "Node": "QOSGrpNodeLimit"},
    ),
    *_limit(
        "QOSGrp{}Minutes",
        "by GrpTRESMins, its QOS has used up its {minutes}",
        {"CPU": "QOSGrpCPUMinutesLimit"},
    ),
    *_limit(
        "QOSGrp{}RunMinutes",
        "by GrpTRESRunMins, jobs of its QOS that run have all of its {minutes}",
        {"CPU": "QOSGrpCPURunMinutesLimit"},
    ),
    *_limit(
        "QOSMax{}PerJob",
        "it asks for more {what} than MaxTRES of its QOS allows",
        {"CPU": "QOSMaxCpuPerJobLimit", "Node": "QOSMaxNodePerJobLimit"},
    ),
    *_limit(
        "QOSMax{}PerNode",
        "it asks for more {what} on a node than MaxTRESPerNode of its QOS allows",
        {"CPU": "QOSMaxCpuPerNode", "Node": "", "License": ""},
    ),
    *_limit(
        "QOSMax{}MinutesPerJob",
        "until its time limit it would use more {minutes} than MaxTRESMins of its QOS allows",
        {"CPU": "QOSMaxCpuMinutesPerJobLimit", "BB": ""},  # BB: Slurm gives it the association's word
    ),
    *_limit(
        "QOSMax{}PerUser",
        "by MaxTRESPerUser of its QOS, its user may not have more {what} at a time",
        {"CPU": "QOSMaxCpuPerUserLimit", "Node": "QOSMaxNodePerUserLimit"},
    ),
    *_limit(
        "Max{}RunMinsPerUser",
        "by MaxTRESRunMinsPerUser of its QOS, jobs of its user that run have all of its {minutes}",
        {"CPU": "MaxCpuRunMinsPerUser"},
    ),
    *_limit(
        "Max{}PerAccount",
        "by MaxTRESPerAccount of its QOS, its account may not have more {what} at a time",
        {"CPU": "MaxCpuPerAccount"},
    ),
    *_limit(
        "Max{}RunMinsPerAccount",
        "by MaxTRESRunMinsPerAccount of its QOS, jobs of its account that run have all of its {minutes}",
        {"CPU": "MaxCpuRunMinsPerAccount"},
    ),
    *_limit(
        "QOSMin{}",
        "its QOS wants a job to ask for more {what}, by MinTRES",
        {"CPU": "QOSMinCpuNotSatisfied"},
    ),
)

PENDING_REASONS: tuple[PendingReason, ...] = (
    *(PendingReason(*row) for row in _COMPETING),
    *(PendingReason(*row, of_its_owner=True) for row in _OF_ITS_OWNER),
    *_LIMITS,
)
_BY_NAME: Mapping[str, PendingReason] = {row.name: row for row in PENDING_REASONS}


def explained(reason: str) -> PendingReason:
    """Returns the row of a Slurm word; for a word outside the table, a row guessed from the spelling."""
    row = _BY_NAME.get(reason)
    if row is not None:
        return row
    limit = reason.startswith(("Assoc", "QOS")) or reason.endswith(("PerAccount", "PerUser"))
    sentence = "a limit is reached" if limit else "Slurm gives no other reason than this word"
    return PendingReason(reason, sentence, of_its_owner=limit)


def waits_for_its_owner(reason: str) -> bool:
    """Returns True if a job with this pending reason takes nothing from other jobs (`of_its_owner`).
    Jobs with other reasons (Priority, Resources, Licenses, an unknown word) compete."""
    return reason == Reason.TOO_LARGE or explained(reason).of_its_owner
