"""Request bodies of v0.0.45, read into the model's values: the way back from `slurm_client.requests`."""

from collections.abc import Mapping
from typing import Any

from slurm_client import hostlist
from slurm_client.errors import CAUSES, InvalidRequest
from slurm_client.model import JobChanges, JobSpec
from slurm_client.requests import TEXTS
from slurm_client.responses import number

_PARSING_FAILED = 9001

Body = Mapping[str, Any]


def job_id(body: Body) -> int:
    """The id that a new job is to have. Raises InvalidRequest where none is named: every job here has an
    id of its submitter's choosing."""
    return _whole(_job(body), "job_id")


def spec(body: Body) -> JobSpec:
    """A new job's. Raises InvalidRequest."""
    job = _job(body)
    return JobSpec(
        name=str(job.get("name") or ""),
        cpus=_whole(job, "cpus_per_task"),
        memory_mb=number(job.get("memory_per_node")) or 0,
        gres=tuple(_gres(one) for one in (job.get("tres_per_node") or "").split(",") if one),
        nodes=_whole(job, "minimum_nodes"),
        priority=number(job.get("priority")),
        shared=next(iter(job.get("shared") or ()), None),
        required_nodes=_names(job.get("required_nodes")) or (),
        excluded_nodes=_names(job.get("excluded_nodes")) or (),
        user_id=_id(job.get("user_id")),
        group_id=_id(job.get("group_id")),
        time_limit_minutes=number(job.get("time_limit")),
        admin_comment=str(job.get("admin_comment") or ""),
        **{name: job.get(name) for name in TEXTS},
    )


def changes(body: Body) -> JobChanges:
    """Of a job that exists. Raises InvalidRequest."""
    return JobChanges(
        excluded_nodes=_names(body.get("excluded_nodes")),
        priority=number(body.get("priority")),
        time_limit_minutes=number(body.get("time_limit")),
        comment=body.get("comment"),
        admin_comment=body.get("admin_comment"),
    )


def not_understood(what: str) -> InvalidRequest:
    why = f"{CAUSES[_PARSING_FAILED].name}: {what}"
    return InvalidRequest(why, number=_PARSING_FAILED, http_status=400)


def _job(body: Body) -> Body:
    job = body.get("job")
    if not isinstance(job, dict):
        raise not_understood("there is no job")
    return job


def _whole(job: Body, field: str) -> int:
    value = number(job.get(field))
    if value is None:
        raise not_understood(f"{field} is no number")
    return value


def _id(value: object) -> int | None:
    """Users and groups come as text; names are not resolved here."""
    if value is not None and not str(value).isdecimal():
        raise not_understood(f"{value!r} is no number of a user or group")
    return None if value is None else int(str(value))


def _gres(tres: str) -> tuple[str, int]:
    """Of "gres/gpu:h100:1"."""
    name, _, count = tres.removeprefix("gres/").rpartition(":")
    if not count.isdecimal():
        raise not_understood(f"{tres!r} is no TRES with its number")
    return name, int(count)


def _names(expressions: object) -> tuple[str, ...] | None:
    """None for [], which Slurm takes for "not said"; () for [""], which clears a list."""
    if not isinstance(expressions, list) or not expressions:
        return None
    try:
        return hostlist.expand(",".join(map(str, expressions)))
    except ValueError as wrong:
        raise not_understood(str(wrong)) from wrong
