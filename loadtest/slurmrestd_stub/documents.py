"""Writes the replies and reads the requests of v0.0.45. This module is the counterpart of `responses`
and `requests` in slurm_client.rest.

A reply is made from a template in the folder `replies`. In a template, "$KIND FIELD" stands for the
field FIELD of a value, written in the form KIND. Jobs and nodes have all fields of 26.05.5, so that
their size and parse time are realistic. Fields that the stub does not set have the values of an EXTERNAL
job or node.
"""

import json
import re
from collections.abc import Callable, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

from slurm_client import gres, hostlist, model, server
from slurm_client.checks import TEXTS
from slurm_client.errors import SlurmError
from slurm_client.job_state import JobState
from slurm_client.reservation import Reservation
from slurm_client.rest.responses import number
from wellknown import number_list

Document = dict[str, Any]

_REPLIES: Final = Path(__file__).parent / "replies"
_FEWEST_CORES: Final = 8
_INDICES: Final = re.compile(r"\(IDX:([\d,-]+)\)")


# Replies.


def _number(value: int | None) -> Document:
    return {"set": value is not None, "infinite": False, "number": value or 0}


def _on_nodes(grant: model.Grant) -> list[Document]:
    """Returns the job's share of each node. The list of cores also has cores that are not allocated to
    the job, and at least as many cores as a small node has."""
    entries = []
    for index, (name, memory, text) in enumerate(
        zip(grant.nodes, grant.memory_mb, grant.cores, strict=False)
    ):
        own = number_list.expand(text)
        cores = [
            {"index": core, "status": ["ALLOCATED" if core in own else "UNALLOCATED"]}
            for core in range(max(_FEWEST_CORES, own[-1] + 1))
        ]
        entries.append(
            {
                "index": index,
                "name": name,
                "cpus": {"count": len(own), "used": 0},
                "memory": {"used": 0, "allocated": memory},
                "sockets": [{"index": 0, "cores": cores}],
            }
        )
    return entries


def _state(state: JobState) -> list[str]:
    return [state.base, *sorted(state.flags)]


_KINDS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "": lambda value: value,
    "number": _number,
    "count": len,
    "time": lambda value: _number(value or 0),
    "limit": lambda value: _number(value) | {"infinite": value is None},
    "hostlist": hostlist.compress,
    "on_nodes": _on_nodes,
    "list": lambda value: ",".join(value or ()),
    "array": lambda value: list(value or ()),
    "state": _state,
    "flags": sorted,
    "states": lambda states: sorted(states, key=lambda state: state in {"DRAIN", "EXTERNAL"}),
    "reason": lambda reason: reason or "None",
    "external": lambda external: ["EXTERNAL_JOB"] if external else [],
    "default": lambda default: ["DEFAULT"] if default else [],
    "up": lambda up: ["UP" if up else "DOWN"],
    "preempt": lambda modes: list(modes) or ["CLUSTER_GLOBAL"],
}


def _constant(name: str) -> Document:
    return dict(json.loads((_REPLIES / f"{name}.json").read_text()))


def _template(name: str) -> Callable[[object], Document]:
    document = _constant(name)
    fields = {key: value for key, value in document.items() if '"$' in json.dumps(value)}
    return lambda known: document | {key: _filled(value, known) for key, value in fields.items()}


def _filled(value: Any, known: object) -> Any:
    if isinstance(value, dict):
        return {key: _filled(each, known) for key, each in value.items()}
    if not isinstance(value, str) or not value.startswith("$"):
        return value
    kind, field = value[1:].split(" ")
    return _KINDS[kind](getattr(known, field))


meta: Final[Callable[[server.Capabilities], Document]] = _template("meta")
"""Metadata of the server in every reply."""
configuration: Final[Callable[[server.Configuration], Document]] = _template("configuration")
job: Final[Callable[[model.Job], Document]] = _template("job")
node: Final[Callable[[model.Node], Document]] = _template("node")
"""A node. Each CPU is a core."""
partition: Final[Callable[[model.Partition], Document]] = _template("partition")
reservation: Final[Callable[[Reservation], Document]] = _template("reservation")
PING: Final = _constant("ping")
_UNSPECIFIED: Final = _constant("unspecified")
_OPENAPI: Final = (_REPLIES / "openapi.json").read_text()


def openapi(capabilities: server.Capabilities) -> bytes:
    """Returns the part of the OpenAPI document from which clients detect capabilities."""
    flag = '"EXTERNAL_JOB"' if capabilities.external_jobs else ""
    books = '"/slurmdb/v0.0.45/job/{job_id}": {},' if capabilities.books else ""
    return _OPENAPI.replace('"$flag"', flag).replace('"$books": {},', books).encode()


def states(known: Mapping[int, JobState]) -> Document:
    return {"jobs": [{"job_id": str(job_id), "state": _state(one)} for job_id, one in known.items()]}


def cancelled(job_id: int, error: SlurmError | None) -> Document:
    """Returns the reply to a cancellation. The HTTP status is 200, with or without an error in the
    reply."""
    code, words = (error.number, error.words) if error else (0, "")
    entry = {"error": {"string": words, "code": code, "message": words}, "federation": {}}
    step = {"job_id": _number(job_id), "step_id": "entire"}
    return {"status": [entry | {"step_id": step, "job_id": _number(job_id)}]}


def resources(known: model.Job) -> Document:
    """Returns a job's resources on each node."""
    has = known.grant
    found = zip_longest(has.nodes, has.memory_mb, has.cores, has.gres, fillvalue="")
    keys = ("node", "mem_alloc", "core_bitmap", "gres")
    return {
        "nodes": [
            dict(zip(keys, (*one[:2], _mask(one[2]), _devices(one[3])), strict=True)) for one in found
        ]
    }


def _mask(cores: str) -> str:
    return f"0x{sum(1 << core for core in number_list.expand(cores)):X}"


def _devices(text: str) -> list[Document]:
    found = zip(gres.parse(text), _INDICES.findall(text), strict=True)
    return [{"name": of[0], "type": of[1], "count": of[2], "index": index} for of, index in found]


def errors(error: SlurmError) -> Document:
    """Returns the reply for an error. SLURM_ERROR has no number and no text in this reply."""
    if error.number is None:
        return _UNSPECIFIED
    entry = {"description": error.words, "error_number": error.number, "error": error.words}
    return {"errors": [entry | {"source": "slurmctld"}]}


# Requests.


def spec(fields: Document) -> model.JobSpec:
    packed, required = "memory_per_cpu" in fields, ",".join(fields.get("required_nodes", ()))
    asked = fields.get("tres_per_task" if packed else "tres_per_node", "")
    wanted = (one.removeprefix("gres/").rpartition(":") for one in filter(None, asked.split(",")))
    memory_mb = (number(fields.get("memory_per_cpu")) or 0) * fields["cpus_per_task"]
    owner: Document = {name: int(fields[name]) for name in ("user_id", "group_id") if name in fields}
    return model.JobSpec(
        name=fields["name"],
        cpus=fields["cpus_per_task"],
        memory_mb=memory_mb if packed else number(fields["memory_per_node"]) or 0,
        gres=tuple((name, int(count)) for name, _, count in wanted),
        nodes=fields["minimum_nodes"],
        tasks=fields["tasks"] if packed else None,
        priority=number(fields.get("priority")),
        shared=next(iter(fields.get("shared", ())), None),
        required_nodes=tuple(required.split(",") if packed and required else filter(None, [required])),
        excluded_nodes=tuple(fields.get("excluded_nodes", ())),
        time_limit_minutes=number(fields.get("time_limit")),
        admin_comment=fields.get("admin_comment", ""),
        **{name: fields.get(name) for name in TEXTS},
        **owner,
    )


def changes(fields: Document) -> model.JobChanges:
    """Returns the changes of a job. Slurm reads [""] as an empty list."""
    excluded = fields.get("excluded_nodes")
    return model.JobChanges(
        excluded_nodes=None if excluded is None else tuple(filter(None, excluded)),
        priority=number(fields.get("priority")),
        time_limit_minutes=number(fields.get("time_limit")),
        comment=fields.get("comment"),
        admin_comment=fields.get("admin_comment"),
    )
