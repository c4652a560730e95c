"""The cluster that a run is about: which partitions it has, and who gives way to whom there."""

from __future__ import annotations

from typing import Final

from deploy.local.spec import ClusterSpec
from wellknown.job_key import job_name

PREFIX: Final = "sunk.coreweave.com/"
"""Of the annotations with which a Pod asks for its job."""
STOPS_AFTER: Final = "local.slurm-extender.io/stop-after"
RUNS_FOR: Final = "local.slurm-extender.io/run-for"
"""By these annotations, in seconds, kwok ends a Pod's containers (deploy/local/templates/kwok.yaml)."""

MAIN: Final = "main"
LOW: Final = "low"
"""Its jobs give way to those of HIGH at once."""
GRACEFUL: Final = "graceful"
"""Its jobs give way too, and have some seconds to leave."""
HIGH: Final = "high"
PROBES: Final = "ext"
"""Room for probes: nobody else names it, and the crowd leaves a node of it empty."""
CROWD: Final = "crowd"
"""EXTERNAL nodes, where many Pods stay."""

CLOSED: Final = "closed"
"""It is DOWN: its jobs wait for ever."""

HELD: Final = "held"
"""The comment of jobs that the site's job_submit.lua holds."""
DENIED: Final = "no project"
"""Of those that it refuses. Of the other placeholders it refuses some, whenever it is asked."""
ODD: Final = "odd"
"""The label of Pods that are never to be bound; what it says is a `plan.Odd`."""
WINDOW: Final = 20
"""How many placeholders may wait in a partition, fewer than a greedy owner has."""

SHARED: Final = (MAIN, LOW, GRACEFUL, HIGH)
"""Those whose nodes have a slurmd, and native jobs."""
CROWD_SIZE: Final = 200
LABEL: Final = "crowd"
"""What those Pods have that are there."""
MOST_GRACE_S: Final = 8
"""Of the Pods there; a Pod's grace must be less than KillWait minus 5 s."""


_NODES: Final = 5
_CPUS: Final = 8
_CROWD_NODES: Final = CROWD_SIZE // _CPUS + 2
"""Two more than it needs: adopted Pods go there too, and some stay."""
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
        # When a job's time came is read from slurmctld's log: `signals`.
        "SlurmctldDebug=debug",
        "LogTimeFormat=iso8601_ms,format_stderr",
    ),
)
