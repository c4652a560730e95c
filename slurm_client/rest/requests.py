"""Makes request bodies for slurmrestd (v0.0.42 to v0.0.45) from the model's values."""

from collections.abc import Iterable
from typing import Any, Final

from slurm_client import checks, hostlist, ownership
from slurm_client.model import JobChanges, JobSpec

_SOMEWHERE: Final = {"current_working_directory": "/"}
"""Every job except an EXTERNAL_JOB needs a working directory (error 2063)."""

_SCRIPT: Final = {
    "environment": ["PATH=/usr/bin:/bin"],
    "standard_output": "/dev/null",
    "standard_error": "/dev/null",
    "script": '#!/bin/sh\n[ "${SLURM_RESTART_COUNT:-0}" = 0 ] || exit 0\nexec sleep infinity\n',
}
"""Fields of a batch job, which holds the allocation if Slurm does not have EXTERNAL_JOB. If the owner
has requeued the job, the job ends at its next start. The job may be smaller after the requeue, and
perhaps no poll has seen this change."""


def submission(spec: JobSpec, job_id: int, *, external: bool) -> dict[str, Any]:
    """Returns the body of POST job/submit: a placeholder that Slurm may queue."""
    job = _numbered(spec, job_id)
    return {"job": job | {"flags": ["EXTERNAL_JOB"]} if external else _SOMEWHERE | _SCRIPT | job}


def allocation(spec: JobSpec, job_id: int, *, external: bool) -> dict[str, Any]:
    """Returns the body of POST job/allocate, for an allocation at once or not at all. Without
    `immediate`, the call would block while the job waits. A client that gives up would then leave the
    job behind."""
    job = _numbered(spec, job_id) | {"immediate": True}
    return {"job": job | {"flags": ["EXTERNAL_JOB"]} if external else _SOMEWHERE | job}


def update(changes: JobChanges) -> dict[str, Any]:
    """Returns the body of POST job/{id}, which has only the changed fields."""
    body: dict[str, Any] = {}
    if changes.excluded_nodes is not None:
        # [] leaves the list as it is (26.05.5); [""] clears the list.
        body["excluded_nodes"] = _node_list(changes.excluded_nodes) or [""]
    texts = {"comment": changes.comment, "admin_comment": changes.admin_comment}
    body |= {field: text for field, text in texts.items() if text is not None}
    return body | _numbers(changes)


def _numbered(spec: JobSpec, job_id: int) -> dict[str, Any]:
    """Returns the fields of a job. Only root and SlurmUser may set three of them: the id, the
    AdminComment and the owner."""
    return _job(spec) | {"job_id": job_id, "admin_comment": spec.admin_comment} | _owner(spec)


def _job(spec: JobSpec) -> dict[str, Any]:
    checks.check(spec)
    body: dict[str, Any] = {
        "name": spec.name,
        "cpus_per_task": spec.cpus,
        "minimum_nodes": spec.nodes,
        # A requeued placeholder would come back under the same id without its Pod.
        "requeue": False,
    }
    return body | (_on_each_node(spec) if spec.tasks is None else _packed(spec)) | _given(spec)


def _on_each_node(spec: JobSpec) -> dict[str, Any]:
    """Returns the fields for equal amounts on each node."""
    return {
        # Each node has one task with all CPUs, so the job gets exactly spec.cpus on each node. Slurm
        # rounds this number up to whole cores. With threads_per_core=1, each CPU would take a whole
        # core. Slurm ignores the CPUs of tres_per_task: the job would get one CPU.
        "tasks": spec.nodes,
        "tasks_per_node": 1,
        "maximum_nodes": spec.nodes,
        "memory_per_node": _number(spec.memory_mb),
        **_tres("tres_per_node", spec),
    }


def _packed(spec: JobSpec) -> dict[str, Any]:
    """Returns the fields for tasks on as few nodes as possible. There is no `maximum_nodes`, because
    Slurm would then spread the tasks (24.11, 26.05)."""
    body = {
        "tasks": spec.tasks,
        "memory_per_cpu": _number(spec.memory_per_cpu_mb),
        **_tres("tres_per_task", spec),
    }
    if not spec.required_nodes:
        return body
    # By the distribution "arbitrary", each task gets the node at its place in the list. Slurm needs the
    # exact number of nodes (error 2006).
    nodes = len(set(spec.required_nodes))
    exact = {"minimum_nodes": nodes, "maximum_nodes": nodes}
    return (
        body | exact | {"distribution": "arbitrary", "required_nodes": [",".join(spec.required_nodes)]}
    )


def _tres(field: str, spec: JobSpec) -> dict[str, Any]:
    return {field: ",".join(f"gres/{name}:{count}" for name, count in spec.gres)} if spec.gres else {}


def _given(spec: JobSpec) -> dict[str, Any]:
    """Returns the fields that the spec sets. All other fields keep Slurm's defaults."""
    body: dict[str, Any] = {
        field: value for field in checks.TEXTS if (value := getattr(spec, field)) is not None
    }
    lists = ("excluded_nodes",) if spec.tasks else ("required_nodes", "excluded_nodes")
    for field in lists:
        if nodes := _node_list(getattr(spec, field)):
            body[field] = nodes
    if spec.shared is not None:
        body["shared"] = [str(spec.shared)]
    places = {"required_switches": spec.switches, "segment_size": spec.segment}
    body |= {field: _number(value) for field, value in places.items() if value is not None}
    return body | _numbers(spec)


def _numbers(given: JobSpec | JobChanges) -> dict[str, Any]:
    numbers = {"priority": given.priority, "time_limit": given.time_limit_minutes}
    return {field: _number(value) for field, value in numbers.items() if value is not None}


def _owner(spec: JobSpec) -> dict[str, Any]:
    """Returns the owner as decimal strings, not as names. slurmrestd resolves names, and the name of a
    group crashes 24.11.5."""
    owner = {"user_id": spec.user_id, "group_id": ownership.group_of(spec)}
    return {field: str(number) for field, number in owner.items() if number is not None}


def _node_list(names: Iterable[str]) -> list[str]:
    """Returns a list with one compressed expression, so that hundreds of names take only a few bytes."""
    compressed = hostlist.compress(names)
    return [compressed] if compressed else []


def _number(value: int) -> dict[str, Any]:
    return {"set": True, "infinite": False, "number": value}
