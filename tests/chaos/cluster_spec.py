"""The cluster of a run: the partitions, and the order of preemption among the partitions."""

from __future__ import annotations

from typing import Final

from deploy.local.spec import ClusterSpec
from wellknown.job_key import job_name

PREFIX: Final = "sunk.coreweave.com/"
"""Prefix of the annotations with a Pod's requests to Slurm."""
STOPS_AFTER: Final = "local.slurm-extender.io/stop-after"
RUNS_FOR: Final = "local.slurm-extender.io/run-for"
"""Annotations for the end of a Pod's containers in kwok, in seconds
(deploy/local/templates/kwok.yaml)."""

MAIN: Final = "main"
LOW: Final = "low"
"""Jobs of HIGH preempt jobs of this partition at once."""
GRACEFUL: Final = "graceful"
"""Jobs of HIGH preempt jobs of this partition after a GraceTime of some seconds."""
HIGH: Final = "high"
PROBES: Final = "ext"
"""Room for probes: no other Pod names this partition, and the crowd leaves a node of the partition
free."""
CROWD: Final = "crowd"
"""Partition of external nodes, for many Pods that stay."""

CLOSED: Final = "closed"
"""A partition in state DOWN: the jobs of this partition wait for ever."""

HELD: Final = "held"
"""Comment of the jobs that the site's job_submit.lua holds."""
DENIED: Final = "no project"
"""Comment of the jobs that job_submit.lua rejects. job_submit.lua also rejects other placeholders at
random."""
ODD: Final = "odd"
"""Label of Pods that can never be bound. The value is a `plan.Odd`."""
WINDOW: Final = 20
"""Largest number of waiting placeholders in a partition. A greedy owner has more Pods."""

SHARED: Final = (MAIN, LOW, GRACEFUL, HIGH)
"""Partitions with native jobs, and with a slurmd on each node."""
CROWD_SIZE: Final = 200
LABEL: Final = "crowd"
"""Label of the crowd's Pods."""
MOST_GRACE_S: Final = 8
"""Longest grace period of a Pod. A grace period must be less than KillWait minus 5 s."""


_NODES: Final = 5
_CPUS: Final = 8
_CROWD_NODES: Final = CROWD_SIZE // _CPUS + 2
"""Two nodes more than the crowd needs: adopted Pods also come to these nodes, and some stay."""
_GRACE_TIME_S: Final = 4
_PREEMPTIBLE: Final = f"Nodes=node-[1-{_NODES}] PriorityTier=1 PreemptMode=CANCEL State=UP"

_JOB_SUBMIT_LUA: Final = f"""
function slurm_job_submit(job, partitions, uid)
    local ours = string.find((job.name or "") .. "#", "{job_name("default", "")}#")
    if job.comment == "{DENIED}" then slurm.log_info("refuses %s", job.name) end
    if job.comment == "{DENIED}" or (ours and math.random() < 0.03) then return slurm.ERROR end
    if job.comment == "{HELD}" then job.priority = 0 end
    return slurm.SUCCESS
end
function slurm_job_modify(job, record, partitions, uid) return slurm.SUCCESS end
return slurm.SUCCESS
"""

SPEC: Final = ClusterSpec(
    nodes=_NODES,
    external_nodes=1 + _CROWD_NODES,
    cpus_per_node=_CPUS,
    replicas=2,
    links=True,
    gate=True,
    kill_wait=MOST_GRACE_S + 6,
    extender_settings=(("UNMANAGED_PODS", "adopt"), ("TAINT_NODES", "true"), ("WINDOW", str(WINDOW))),
    job_submit_lua=_JOB_SUBMIT_LUA,
    slurm_conf=(
        "PreemptType=preempt/partition_prio",
        "PreemptMode=CANCEL",
        f"PartitionName={LOW} {_PREEMPTIBLE}",
        f"PartitionName={GRACEFUL} {_PREEMPTIBLE} GraceTime={_GRACE_TIME_S}",
        f"PartitionName={HIGH} Nodes=node-[1-{_NODES}] PriorityTier=9 PreemptMode=OFF State=UP",
        f"PartitionName={CROWD} Nodes=external-[2-{1 + _CROWD_NODES}] PreemptMode=OFF State=UP",
        f"PartitionName={CLOSED} Nodes=node-[1-{_NODES}] PreemptMode=OFF State=DOWN",
        # `signals` reads from slurmctld's log when a job was cancelled or preempted.
        "SlurmctldDebug=debug",
        "LogTimeFormat=iso8601_ms,format_stderr",
    ),
)
