"""Pending reasons of jobs: one table of Slurm's words, each with a sentence for Pod authors.

The words and their meanings come from Slurm's src/common/job_state_reason.c (24.11 to 26.05), slurm.h
and slurm.schedmd.com/job_reason_codes.html. The page docs/reference/reasons.md shows the same table
(`extender.pages`).
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from wellknown.names import Reason


class PendingReason(NamedTuple):
    """One row of the table."""

    name: str
    """Slurm's word for the reason."""
    sentence: str
    """Reason why the job waits. The sentence has no full stop. The sentence begins in lower case, unless
    the first word is Slurm."""
    of_its_owner: bool = False
    """True if the job could not start even on an idle cluster. Such a job waits for a limit of the job's
    owner, for a person, or for a time, and takes nothing from other jobs."""


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
"""Resources that Slurm's limits count (TRES), as most of Slurm's words for a reason spell the resources.
Each resource has two texts: for an amount, and for an amount over time."""


def _limit(
    pattern: str, sentence: str, but: Mapping[str, str] = MappingProxyType({})
) -> Iterator[PendingReason]:
    """Yields the rows of one limit: one row for each counted resource, because Slurm has a separate word
    for each resource. `but` has the words that `pattern` does not give. An empty text in `but` means
    that Slurm has no such word."""
    for thing, (what, minutes) in _THINGS.items():
        if name := but.get(thing, pattern.format(thing)):
            yield PendingReason(name, sentence.format(what=what, minutes=minutes), of_its_owner=True)


_COMPETING = (
    ("None", "Slurm has not considered the job yet"),
    ("Resources", "all fitting nodes are in use"),
    ("Priority", "other jobs of the partition come first"),
    ("ReqNodeNotAvail", "nodes that the job could use are out of service, or reserved for other jobs"),
    ("Constraints", "no node with the requested features is in service"),
    ("NodeDown", "a node that the job needs is down"),
    ("FrontEndDown", "the front end that the job needs is down"),
    ("MaxPoweredUpNodes", "no more nodes may be powered up at a time"),
    ("Licenses", "the licenses that the job requests are in use"),
    ("BurstBufferResources", "the burst buffer has too little free space for the job now"),
    ("BurstBufferStageIn", "the job's files are being copied into the burst buffer"),
    ("BurstBufferOperation", "an operation on the job's burst buffer has failed"),
    ("NvidiaImexChannels", "all NVIDIA IMEX channels are in use"),
    ("MpiPortsBusy", "all ports reserved for MPI are in use"),
    ("PartitionDown", "the partition starts no jobs now (State DOWN or DRAIN)"),
    ("PartitionInactive", "the partition accepts and starts no jobs now (State INACTIVE)"),
    ("PartitionConfig", "the configuration of the partition does not let the job start"),
    (
        "PartitionNodeLimit",
        "the partition does not allow so many nodes, or nodes that the job requires are down",
    ),
    ("SchedDefer", "Slurm looks for nodes only a short time after a job is submitted"),
    ("Prolog", "the Prolog of the job's node is running"),
    ("Cleaning", "Slurm still cleans up after the last run of the job"),
    ("JobArrayTaskLimit", "no more tasks of the job array may run at a time"),
    ("FedJobLock", "the clusters of a federation have not agreed yet which cluster starts the job"),
    ("DeadLine", "the job can no longer end before the deadline"),
    ("SystemFailure", "Slurm itself has failed: Slurm's log has the reason"),
    ("JobLaunchFailure", "Slurm could not launch the job"),
    ("NonZeroExitCode", "the job has ended with an exit code other than 0"),
    ("RaisedSignal", "a signal has ended the job"),
    ("OutOfMemory", "the job has used more memory than allocated"),
    ("TimeLimit", "the job has reached the time limit"),
    ("InactiveLimit", "the job has reached Slurm's InactiveLimit"),
)
"""Reasons of waiting jobs that compete with other jobs, and reasons for which a job has ended. A
requeued job waits, but may still show why its last run has ended."""

_OF_ITS_OWNER = (
    (
        "JobHeldUser",
        "the job is held in the Slurm user's name until the user or an administrator releases the job",
    ),
    (
        "JobHeldAdmin",
        (
            "an administrator of Slurm or a job_submit plugin holds the job until an administrator"
            " releases the job"
        ),
    ),
    (
        "JobHoldMaxRequeue",
        "the job was requeued too often, and is held until an administrator of Slurm releases the job",
    ),
    ("BeginTime", "the job may not start before the begin time"),
    ("Dependency", "the job depends on another job, which has not ended"),
    ("DependencyNeverSatisfied", "the dependency of the job can no longer be satisfied"),
    ("Reservation", "the reservation has not begun, or all nodes of the reservation are in use"),
    ("ReservationDeleted", "the job's reservation was deleted"),
    ("ReservationInvalid", "the job cannot use the reservation (any more)"),
    ("AccountNotAllowed", "the partition does not allow the job's account"),
    ("QOSNotAllowed", "the job's association or the partition does not allow the job's QOS"),
    ("InvalidAccount", "the Slurm user has no association with the job's account (any more)"),
    ("InvalidQOS", "the job's association may not use the QOS (any more), or the QOS does not exist"),
    ("AccountingPolicy", "a limit of the job's association or QOS is reached"),
    ("BadConstraints", "no node of the partition can ever satisfy the request of the job"),
    ("PartitionTimeLimit", "the job's time limit is longer than the partition allows"),
    ("MaxMemPerLimit", "the job requests more memory than MaxMemPerCPU or MaxMemPerNode allows"),
    ("AssociationJobLimit", "the job's association may not have more jobs at a time"),
    ("AssociationResourceLimit", "the job's association may not have more resources at a time"),
    ("AssociationTimeLimit", "the job's association has used up the allowed time"),
    ("AssocGrpJobsLimit", "the limit GrpJobs of the job's association allows no more running jobs"),
    (
        "AssocGrpSubmitJobsLimit",
        "the limit GrpSubmitJobs of the job's association allows no more jobs at a time",
    ),
    ("AssocGrpWallLimit", "the job's association has used up the time of GrpWall"),
    ("AssocMaxJobsLimit", "the limit MaxJobs of the job's association allows no more running jobs"),
    (
        "AssocMaxSubmitJobLimit",
        "the limit MaxSubmitJobs of the job's association allows no more jobs at a time",
    ),
    (
        "AssocMaxWallDurationPerJobLimit",
        "the job's time limit is longer than MaxWall of the association allows",
    ),
    ("QOSJobLimit", "the job's QOS may not have more jobs at a time"),
    ("QOSResourceLimit", "the job's QOS may not have more resources at a time"),
    ("QOSTimeLimit", "the job's QOS has used up the allowed time"),
    ("QOSUsageThreshold", "the fair share of the association is below UsageThreshold of the job's QOS"),
    ("QOSGrpJobsLimit", "the limit GrpJobs of the job's QOS allows no more running jobs"),
    ("QOSGrpSubmitJobsLimit", "the limit GrpSubmitJobs of the job's QOS allows no more jobs at a time"),
    ("QOSGrpWallLimit", "the job's QOS has used up the time of GrpWall"),
    ("QOSMaxWallDurationPerJobLimit", "the job's time limit is longer than MaxWall of the QOS allows"),
    (
        "QOSMaxJobsPerUserLimit",
        "the limit MaxJobsPerUser of the job's QOS allows no more running jobs of the Slurm user",
    ),
    (
        "QOSMaxSubmitJobPerUserLimit",
        "the limit MaxSubmitJobsPerUser of the job's QOS allows no more jobs of the Slurm user",
    ),
    (
        "MaxJobsPerAccount",
        "the limit MaxJobsPerAccount of the job's QOS allows no more running jobs of the account",
    ),
    (
        "MaxSubmitJobsPerAccount",
        "the limit MaxSubmitJobsPerAccount of the job's QOS allows no more jobs of the account",
    ),
)

_LIMITS = (
    *_limit(
        "AssocGrp{}",
        "the limit GrpTRES of the job's association allows no more {what} at a time",
        {"CPU": "AssocGrpCpuLimit", "Memory": "AssocGrpMemLimit", "Node": "AssocGrpNodeLimit"},
    ),
    *_limit(
        "AssocGrp{}Minutes",
        "the job's association has used up the {minutes} of GrpTRESMins",
        {"CPU": "AssocGrpCPUMinutesLimit", "Memory": "AssocGrpMemMinutes"},
    ),
    *_limit(
        "AssocGrp{}RunMinutes",
        "running jobs of the association occupy all {minutes} of GrpTRESRunMins",
        {"CPU": "AssocGrpCPURunMinutesLimit", "Memory": "AssocGrpMemRunMinutes"},
    ),
    *_limit(
        "AssocMax{}PerJob",
        "the job requests more {what} than MaxTRES of the association allows",
        {
            "CPU": "AssocMaxCpuPerJobLimit",
            "Memory": "AssocMaxMemPerJob",
            "Node": "AssocMaxNodePerJobLimit",
        },
    ),
    *_limit(
        "AssocMax{}PerNode",
        "the job requests more {what} on a node than MaxTRESPerNode of the association allows",
        {"CPU": "AssocMaxCpuPerNode", "Memory": "AssocMaxMemPerNode", "Node": "", "License": ""},
    ),
    *_limit(
        "AssocMax{}MinutesPerJob",
        "until the time limit the job would use more {minutes} than MaxTRESMins of the association"
        " allows",
        {"CPU": "AssocMaxCpuMinutesPerJobLimit", "Memory": "AssocMaxMemMinutesPerJob"},
    ),
    *_limit(
        "QOSGrp{}",
        "the limit GrpTRES of the job's QOS allows no more {what} at a time",
        {"CPU": "QOSGrpCpuLimit", "Memory": "QOSGrpMemLimit", "Node": "QOSGrpNodeLimit"},
    ),
    *_limit(
        "QOSGrp{}Minutes",
        "the job's QOS has used up the {minutes} of GrpTRESMins",
        {"CPU": "QOSGrpCPUMinutesLimit"},
    ),
    *_limit(
        "QOSGrp{}RunMinutes",
        "running jobs of the QOS occupy all {minutes} of GrpTRESRunMins",
        {"CPU": "QOSGrpCPURunMinutesLimit"},
    ),
    *_limit(
        "QOSMax{}PerJob",
        "the job requests more {what} than MaxTRES of the QOS allows",
        {"CPU": "QOSMaxCpuPerJobLimit", "Node": "QOSMaxNodePerJobLimit"},
    ),
    *_limit(
        "QOSMax{}PerNode",
        "the job requests more {what} on a node than MaxTRESPerNode of the QOS allows",
        {"CPU": "QOSMaxCpuPerNode", "Node": "", "License": ""},
    ),
    *_limit(
        "QOSMax{}MinutesPerJob",
        "until the time limit the job would use more {minutes} than MaxTRESMins of the QOS allows",
        {"CPU": "QOSMaxCpuMinutesPerJobLimit", "BB": ""},  # BB: Slurm uses the association's word
    ),
    *_limit(
        "QOSMax{}PerUser",
        "the limit MaxTRESPerUser of the job's QOS allows the Slurm user no more {what} at a time",
        {"CPU": "QOSMaxCpuPerUserLimit", "Node": "QOSMaxNodePerUserLimit"},
    ),
    *_limit(
        "Max{}RunMinsPerUser",
        "running jobs of the Slurm user occupy all {minutes} of MaxTRESRunMinsPerUser of the job's QOS",
        {"CPU": "MaxCpuRunMinsPerUser"},
    ),
    *_limit(
        "Max{}PerAccount",
        "the limit MaxTRESPerAccount of the job's QOS allows the account no more {what} at a time",
        {"CPU": "MaxCpuPerAccount"},
    ),
    *_limit(
        "Max{}RunMinsPerAccount",
        "running jobs of the account occupy all {minutes} of MaxTRESRunMinsPerAccount of the job's QOS",
        {"CPU": "MaxCpuRunMinsPerAccount"},
    ),
    *_limit(
        "QOSMin{}",
        "the limit MinTRES of the job's QOS requires a job to request more {what}",
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
    """Returns the row of a Slurm word. For a word outside the table, guesses a row from the spelling."""
    row = _BY_NAME.get(reason)
    if row is not None:
        return row
    limit = reason.startswith(("Assoc", "QOS")) or reason.endswith(("PerAccount", "PerUser"))
    sentence = "a limit is reached" if limit else "Slurm gives no other reason than this word"
    return PendingReason(reason, sentence, of_its_owner=limit)


def waits_for_its_owner(reason: str) -> bool:
    """Returns True if a job with this pending reason takes nothing from other jobs (`of_its_owner`).
    Jobs with other reasons (Priority, Resources, Licenses, an unknown word) compete with other jobs."""
    return reason == Reason.TOO_LARGE or explained(reason).of_its_owner
