"""Replies of v0.0.45, from the model's values: the way back from `slurm_client.replies`.

A job and a node have all the fields of 26.05.5's, so that they are as long and take as long to read;
those that nothing here sets are in job.json and node.json, as they were for an EXTERNAL job and node.
"""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from slurm_client import hostlist
from slurm_client.errors import SlurmError
from slurm_client.model import Capabilities, Configuration, Job, JobState, Node, Partition

Document = dict[str, Any]

_HERE: Final = Path(__file__).parent
_JOB: Final[Document] = json.loads((_HERE / "job.json").read_text())
_NODE: Final[Document] = json.loads((_HERE / "node.json").read_text())
_VERSION: Final = "v0.0.45"
_PATHS: Final = (
    *("ping/", "conf", "partitions/", "nodes/", "node/{node_name}", "resources/{job_id}"),
    *("jobs/state/", "job/{job_id}", "job/submit", "job/allocate"),
)
_DEVICES: Final = re.compile(r"(\w+)(?::(\w+))?:(\d+)\(IDX:([\d,-]+)\)")


def meta(capabilities: Capabilities) -> Document:
    """What every reply says of its server."""
    return {
        "plugin": {
            "type": "openapi/slurmctld",
            "name": "Slurm OpenAPI slurmctld",
            "data_parser": f"data_parser/{_VERSION}",
            "accounting_storage": "",
        },
        "client": {"source": "127.0.0.1:0(fd:9)", "user": "root", "group": "root"},
        "command": [],
        "slurm": {
            "version": {"major": "26", "micro": "5", "minor": "05"},
            "release": capabilities.release,
            "cluster": capabilities.cluster,
        },
    }


def openapi(capabilities: Capabilities) -> Document:
    """Of it, what a client looks for its capabilities in."""
    flags = ["EXTERNAL_JOB"] if capabilities.external_jobs else []
    schemas = {
        f"{_VERSION}_job_desc_msg": {"properties": {"flags": {"items": {"enum": flags}}}},
        f"{_VERSION}_partition_info": {"properties": {"flags": {}}},
    }
    paths: Document = {f"/slurm/{_VERSION}/{path}": {} for path in _PATHS}
    return {"openapi": "3.0.3", "paths": paths, "components": {"schemas": schemas}}


def ping(*, responding: bool) -> Document:
    status = "" if responding else "Unable to contact slurm controller (connect failure)"
    one = {"hostname": "stub", "pinged": "UP" if responding else "DOWN", "responding": responding}
    return {"pings": [one | {"mode": "primary", "primary": True, "latency": 100, "status": status}]}


def configuration(known: Configuration) -> Document:
    """What slurm.conf is run with."""
    conf = {
        "ClusterName": known.cluster_name,
        "FirstJobId": known.first_job_id,
        "MaxJobId": known.max_job_id,
        "MaxJobCount": known.max_job_count,
        "KillWait": known.kill_wait_s,
        "MinJobAge": known.min_job_age_s,
        "PreemptType": known.preempt_type,
        "PreemptMode": ",".join(known.preempt_mode or ()),
        "SlurmUserId": known.slurm_user_id,
        "SchedulerParameters": ",".join(known.scheduler_parameters or ()),
        "MessageTimeout": known.message_timeout_s,
    }
    times = {"BOOT_TIME": known.boot_time, "NEXT_JOB_ID": known.next_job_id}
    return {"slurm_conf": conf, "slurm_conf_meta": times}


def created(job_id: int) -> Document:
    """Of job/submit and job/allocate."""
    return {"job_id": job_id, "job_submit_user_msg": ""}


def states(known: Mapping[int, JobState]) -> Document:
    return {"jobs": [{"job_id": str(job_id), "state": _state(one)} for job_id, one in known.items()]}


def job(known: Job) -> Document:
    """The only one of `jobs`."""
    return {"jobs": [_job(known)], "last_update": _number(known.submit_time)}


def cancelled(job_id: int, number: int, words: str) -> Document:
    """HTTP 200 whatever happened; `number` is 0 for success."""
    error = {"string": words, "code": number, "message": words}
    step = {"job_id": _number(job_id), "step_id": "entire"}
    return {"status": [{"error": error, "step_id": step, "job_id": _number(job_id), "federation": {}}]}


def resources(known: Job) -> Document:
    """Nodes and devices; which cores is not known here."""
    gres = known.gres or ("",) * len(known.nodes)
    return {"nodes": [_resources(known, *one) for one in zip(known.nodes, gres, strict=True)]}


def node(known: Node) -> Document:
    """One of `nodes`."""
    sockets, cores = 1, known.cores or known.cpus
    return (
        _NODE
        | {
            "name": known.name,
            "state": sorted(known.states, key=lambda state: state in {"DRAIN", "EXTERNAL"}),
            "cpus": known.cpus,
            "effective_cpus": known.cpus,
            "sockets": sockets,
            "cores": cores,
            "threads": known.threads_per_core,
            "real_memory": known.memory_mb,
            "gres": known.gres,
            "gres_used": known.gres_used,
            "features": list(known.features),
            "active_features": list(known.features),
            "partitions": list(known.partitions),
            "address": known.address,
            "hostname": known.hostname,
            "reason": known.reason,
            "comment": known.comment,
            "extra": known.extra,
            "cluster_name": "",
        }
        | allocated(known)
    )


def allocated(known: Node | None) -> Document:
    """Of a node, what slurmctld counts now and then only."""
    cpus, memory_mb = (known.cpus_allocated, known.memory_allocated_mb) if known else (0, 0)
    return {"alloc_cpus": cpus, "alloc_memory": memory_mb}


def partitions(known: Iterable[Partition]) -> Document:
    return {"partitions": [_partition(one) for one in known]}


def errors(error: SlurmError) -> Document:
    """Of an error that Slurm has a number for."""
    told = {"description": error.words, "error_number": error.number, "error": error.words}
    return {"errors": [told | {"source": "slurmctld"}]}


def unspecified() -> Document:
    """Of SLURM_ERROR, which says nothing."""
    told = {
        "description": "Batch job submission failed",
        "error_number": -1,
        "error": "Unspecified error",
    }
    return {"errors": [told | {"source": "slurm_submit_batch_job()"}]}


def no_such_node(name: str) -> Document:
    """HTTP 200, and no number."""
    return {"nodes": [], "errors": [{"description": f"Failure to query node {name}", "source": "node"}]}


def _job(known: Job) -> Document:
    done = {"status": ["SUCCESS"], "return_code": _number(known.exit_code)}
    return _JOB | {
        "job_id": known.id,
        "job_state": _state(known.state),
        "name": known.name,
        "partition": known.partition,
        "user_id": known.user_id,
        "group_id": known.group_id,
        "account": known.account,
        "qos": known.qos,
        "resv_name": known.reservation,
        "comment": known.comment,
        "admin_comment": known.admin_comment,
        "nodes": hostlist.compress(known.nodes),
        "gres_detail": list(known.gres),
        "cpus": _number(known.cpus_allocated),
        "state_reason": known.reason or "None",
        "state_description": known.state_description,
        "submit_time": _number(known.submit_time or 0),
        "start_time": _number(known.start_time or 0),
        "end_time": _number(known.end_time or 0),
        "preempt_time": _number(known.preempt_time or 0),
        "exit_code": done | {"signal": {"id": _number(known.exit_signal), "name": ""}},
        "step_id": {"sluid": known.sluid, "job_id": _number(known.id), "step_id": "entire"},
        "flags": ["EXTERNAL_JOB"] if known.external else [],
        "restart_cnt": known.restart_count,
        "cpus_per_task": _number(known.cpus_per_node),
        "memory_per_node": _number(known.memory_mb),
        "tres_per_node": known.tres_per_node,
        "node_count": _number(known.node_count),
        "features": known.constraints,
        "prefer": known.prefer,
        "required_nodes": hostlist.compress(known.required_nodes),
        "excluded_nodes": hostlist.compress(known.excluded_nodes),
        "current_working_directory": known.current_working_directory,
        "priority": _number(known.priority),
        "time_limit": _number(known.time_limit_minutes, infinite=known.time_limit_minutes is None),
        "requeue": known.requeue,
        "hold": known.held,
    }


def _resources(known: Job, node: str, gres: str) -> Document:
    return {
        "node": node,
        "mem_alloc": known.memory_mb,
        "core_bitmap": "",
        "gres": [
            {"name": name, "type": kind, "count": int(count), "index": index}
            for name, kind, count, index in _DEVICES.findall(gres)
        ],
    }


def _partition(known: Partition) -> Document:
    return {
        "name": known.name,
        "nodes": {"configured": hostlist.compress(known.nodes), "total": len(known.nodes)},
        "flags": ["DEFAULT"] if known.default else [],
        "partition": {"state": ["UP" if known.up else "DOWN"], "oversubscribe": known.oversubscribe},
        "priority": {"tier": known.priority_tier},
        "preempt_mode": list(known.preempt_mode) or ["CLUSTER_GLOBAL"],
        "maximums": {"time": _number(known.max_time_minutes, infinite=known.max_time_minutes is None)},
        "grace_time": known.grace_time_s,
    }


def _state(state: JobState) -> list[str]:
    return [state.base, *sorted(state.flags)]


def _number(value: int | None, *, infinite: bool = False) -> Document:
    return {"set": value is not None, "infinite": infinite, "number": value or 0}
