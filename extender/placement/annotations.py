"""The annotations a Pod author writes, read into a job: one table, a parser for each kind of value.

Their meaning is sbatch(1)'s. The prefix is configurable; who may ask for what is a policy's matter.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from extender.placement.identity import whole_number
from slurm_client import hostlist
from slurm_client.model import Sharing

DEFAULT_PREFIX = "sunk.coreweave.com/"

# "true" and "false" are the older boolean form of none and ok.
_SHARED = {
    "none": Sharing.NONE,
    "true": Sharing.NONE,
    "ok": Sharing.ALLOWED,
    "false": Sharing.ALLOWED,
    "user": Sharing.USER,
    "mcs": Sharing.MCS,
    "topo": Sharing.TOPO,
}


_LARGEST = 0xFFFF_FFFD
"""Slurm's numbers have 32 bits, and the two largest mean "infinite" and "not set"."""
_SHOWN = 80
_HOST = re.compile(r"[\w.-]*(?:\[[0-9,-]+\][\w.-]*)*", re.ASCII)


def _text(value: str) -> str:
    text = value.strip()  # a YAML block ends with a newline
    if not text:
        raise ValueError("a text that is not empty")
    return text


def _number(value: str) -> int:
    number = whole_number(value.strip())
    if number is None or number > _LARGEST:
        raise ValueError(f"a whole number from 0 to {_LARGEST}")
    return number


def _names(value: str) -> tuple[str, ...]:
    """Names, or hostlist expressions as Slurm takes them: "gpu[01-04,09],x5"."""
    text = value.strip().strip(",")
    well_formed = all(_HOST.fullmatch(part.strip()) for part in re.split(r",(?![^\[]*\])", text))
    try:
        names = hostlist.expand(text) if well_formed else ()
    except ValueError:
        names = ()
    if not names:
        raise ValueError("a list of node names, like gpu[01-04],x5")
    return names


def _shared(value: str) -> Sharing:
    try:
        return _SHARED[value.strip()]
    except KeyError:
        raise ValueError("one of none, ok, user, mcs, topo, true, false") from None


def _absolute_path(value: str) -> str:
    if not value.startswith("/"):
        raise ValueError("an absolute path")
    return value.strip()


def _minutes(value: str) -> int:
    """Slurm counts minutes: seconds are rounded up, so that a Pod never gets less than it asked."""
    seconds = _number(value)
    if seconds == 0:
        raise ValueError("a number of seconds, 1 or more")
    return -(-seconds // 60)


@dataclass(frozen=True, slots=True)
class Annotation:
    """One row of the table: the name after the prefix, the job's field, and how a value is read."""

    name: str
    field: str
    read: Callable[[str], Any]


ANNOTATIONS: tuple[Annotation, ...] = (
    Annotation("account", "account", _text),
    Annotation("comment", "comment", _text),
    Annotation("constraints", "constraints", _text),
    Annotation("current-working-dir", "current_working_directory", _absolute_path),
    Annotation("excluded-nodes", "excluded_nodes", _names),
    Annotation("exclusive", "shared", _shared),
    Annotation("group-id", "group_id", _number),
    Annotation("partition", "partition", _text),
    Annotation("prefer", "prefer", _text),
    Annotation("priority", "priority", _number),
    Annotation("qos", "qos", _text),
    Annotation("required-nodes", "required_nodes", _names),
    Annotation("reservation", "reservation", _text),
    Annotation("timeout", "time_limit_minutes", _minutes),
    Annotation("user-id", "user_id", _number),
)


def read_annotations(
    annotations: Mapping[str, str], prefix: str
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Returns the job fields that the annotations ask for, and every problem found, in words."""
    fields: dict[str, Any] = {}
    problems: list[str] = []
    for row in ANNOTATIONS:
        value = annotations.get(prefix + row.name)
        if value is None:
            continue
        try:
            fields[row.field] = row.read(value)
        except ValueError as allowed:
            problems.append(f"annotation {prefix}{row.name}: {value[:_SHOWN]!r} is not {allowed}")
    if "user_id" in fields:
        fields.setdefault("group_id", fields["user_id"])
    return fields, tuple(problems)
