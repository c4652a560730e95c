"""Replies of v0.0.45, from the model's values: the way back from `slurm_client.responses`.

A reply is a template of the folder `replies`, in which "$KIND FIELD" stands for a field of the value. A
job and a node have all the fields of 26.05.5's, so that they are as long and take as long to read; those
that nothing here sets are as they were for an EXTERNAL job and node.
"""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from slurm_client import hostlist
from slurm_client.errors import SlurmError
from slurm_client.model import Capabilities, Configuration, Job, JobState, Node, Partition

Document = dict[str, Any]

_REPLIES: Final = Path(__file__).parent / "replies"
_DEVICES: Final = re.compile(
    r"(?P<name>\w+)(?::(?P<type>\w+))?:(?P<count>\d+)\(IDX:(?P<index>[\d,-]+)\)"
)


def _number(value: int | None) -> Document:
    return {"set": value is not None, "infinite": False, "number": value or 0}


_KINDS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "": lambda value: value,
    "number": _number,
    "time": lambda value: _number(value or 0),
    "limit": lambda value: _number(value) | {"infinite": value is None},
    "hostlist": hostlist.compress,
    "list": lambda value: ",".join(value or ()),
}


class _Template:
    """Writes one kind of reply."""

    def __init__(self, name: str) -> None:
        told: Document = json.loads((_REPLIES / f"{name}.json").read_text())
        self._fields = {key: value for key, value in told.items() if '"$' in json.dumps(value)}
        self._fixed = {key: value for key, value in told.items() if key not in self._fields}

    def filled(self, known: object) -> Document:
        return self._fixed | {key: _filled(value, known) for key, value in self._fields.items()}


def _filled(value: Any, known: object) -> Any:
    if isinstance(value, dict):
        return {key: _filled(each, known) for key, each in value.items()}
    if not isinstance(value, str) or not value.startswith("$"):
        return value
    kind, field = value[1:].split(" ")
    return _KINDS[kind](getattr(known, field))


_JOB, _NODE, _PARTITION = (_Template(name) for name in ("job", "node", "partition"))
meta: Final[Callable[[Capabilities], Document]] = _Template("meta").filled
"""What every reply says of its server."""
configuration: Final[Callable[[Configuration], Document]] = _Template("configuration").filled
"""What slurm.conf is run with."""
_OPENAPI: Final = (_REPLIES / "openapi.json").read_text()
UNSPECIFIED: Final[Document] = json.loads((_REPLIES / "unspecified.json").read_text())
"""Of SLURM_ERROR, which says nothing."""


def openapi(capabilities: Capabilities) -> bytes:
    """Of it, what a client looks for its capabilities in."""
    flag = '"EXTERNAL_JOB"' if capabilities.external_jobs else ""
    books = '"/slurmdb/v0.0.45/job/{job_id}": {},' if capabilities.books else ""
    return _OPENAPI.replace('"$flag"', flag).replace('"$books": {},', books).encode()


def ping(*, responding: bool) -> Document:
    status = "" if responding else "Unable to contact slurm controller (connect failure)"
    one = {"hostname": "stub", "pinged": "UP" if responding else "DOWN", "responding": responding}
    return {"pings": [one | {"mode": "primary", "primary": True, "latency": 100, "status": status}]}


def created(job_id: int) -> Document:
    """Of job/submit and job/allocate."""
    return {"job_id": job_id, "job_submit_user_msg": ""}


def states(known: Mapping[int, JobState]) -> Document:
    return {"jobs": [{"job_id": str(job_id), "state": _state(one)} for job_id, one in known.items()]}


def job(known: Job) -> Document:
    """The only one of `jobs`."""
    flags = ["EXTERNAL_JOB"] if known.external else []
    told = {"job_state": _state(known.state), "state_reason": known.reason or "None", "flags": flags}
    return {"jobs": [_JOB.filled(known) | told], "last_update": _number(known.submit_time)}


def in_the_books(known: Job | None, canceller: str | None, cluster: str) -> Document:
    """Of what slurmdbd has written down, what a client looks for."""
    if known is None:
        return {"jobs": []}
    state = {"current": [known.state.base], "reason": "None"}
    times = {"submission": known.submit_time}
    who = {"cluster": cluster, "kill_request_user": canceller or ""}
    return {"jobs": [{"state": state, "time": times} | who]}


def cancelled(job_id: int, number: int, words: str) -> Document:
    """HTTP 200 whatever happened; `number` is 0 for success."""
    error = {"string": words, "code": number, "message": words}
    step = {"job_id": _number(job_id), "step_id": "entire"}
    return {"status": [{"error": error, "step_id": step, "job_id": _number(job_id), "federation": {}}]}


def resources(known: Job) -> Document:
    """Nodes and devices; which cores is not known here."""
    gres = known.gres or ("",) * len(known.nodes)
    return {"nodes": [_resources(known, *one) for one in zip(known.nodes, gres, strict=True)]}


def _resources(known: Job, node: str, gres: str) -> Document:
    devices = [found.groupdict("") for found in _DEVICES.finditer(gres)]
    counted = [{**each, "count": int(each["count"])} for each in devices]
    return {"node": node, "mem_alloc": known.memory_mb, "core_bitmap": "", "gres": counted}


def node(known: Node) -> Document:
    """One of `nodes`."""
    states = sorted(known.states, key=lambda state: state in {"DRAIN", "EXTERNAL"})
    return _NODE.filled(known) | {"state": states, "cores": known.cores or known.cpus}


def allocated(known: Node | None) -> Document:
    """Of a node, what slurmctld counts now and then only."""
    cpus, memory_mb = (known.cpus_allocated, known.memory_allocated_mb) if known else (0, 0)
    return {"alloc_cpus": cpus, "alloc_memory": memory_mb}


def partition(known: Partition) -> Document:
    """One of `partitions`."""
    told = _PARTITION.filled(known)
    told["nodes"]["total"] = len(known.nodes)
    told["partition"]["state"] = ["UP" if known.up else "DOWN"]
    told["flags"] = ["DEFAULT"] if known.default else []
    return told | {"preempt_mode": list(known.preempt_mode) or ["CLUSTER_GLOBAL"]}


def errors(error: SlurmError) -> Document:
    """Of an error that Slurm has a number for."""
    told = {"description": error.words, "error_number": error.number, "error": error.words}
    return {"errors": [told | {"source": "slurmctld"}]}


def no_such_node(name: str) -> Document:
    """HTTP 200, and no number."""
    return {"nodes": [], "errors": [{"description": f"Failure to query node {name}", "source": "node"}]}


def _state(state: JobState) -> list[str]:
    return [state.base, *sorted(state.flags)]
