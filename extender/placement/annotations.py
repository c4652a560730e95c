"""The annotations a Pod author writes, read into a job: one table, a reader for each kind of value.

Their meaning is sbatch(1)'s. The prefix is configurable; who may ask for what is a policy's matter. The
same table is the page that people read: docs/annotations.md (`extender.annotations_page`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice
from typing import Any

from extender.placement.identity import whole_number
from slurm_client import hostlist
from slurm_client.model import Sharing

DEFAULT_PREFIX = "sunk.coreweave.com/"
DEFAULT_PAGE = "docs/annotations.md"
"""Where the page is; every message to a Pod author points into it."""

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


LARGEST = 0xFFFF_FFFD
"""Slurm's numbers have 32 bits, and the two largest mean "infinite" and "not set"."""
_SHOWN = 60
_MOST_UNKNOWN = 50  # of the names that nobody knows: a Pod may bring any number
_ALIKE = 0.8  # difflib's ratio: one letter of five may be another
_HOST = re.compile(r"[\w.-]*(?:\[[0-9,-]+\][\w.-]*)*", re.ASCII)


def _text(value: str) -> str:
    text = value.strip()  # a YAML block ends with a newline
    if not text:
        raise ValueError
    return text


def _number(value: str) -> int:
    number = whole_number(value.strip())
    if number is None or number > LARGEST:
        raise ValueError
    return number


def _names(value: str) -> tuple[str, ...]:
    """Names, or hostlist expressions as Slurm takes them: "gpu[01-04,09],x5"."""
    text = value.strip().strip(",")
    well_formed = all(_HOST.fullmatch(part.strip()) for part in re.split(r",(?![^\[]*\])", text))
    names = hostlist.expand(text) if well_formed else ()
    if not names:
        raise ValueError
    return names


def _shared(value: str) -> Sharing:
    try:
        return _SHARED[value.strip()]
    except KeyError:
        raise ValueError from None


def _absolute_path(value: str) -> str:
    if not value.startswith("/"):
        raise ValueError
    return value.strip()


def _minutes(value: str) -> int:
    seconds = _number(value)
    if seconds == 0:
        raise ValueError
    return minutes(seconds)


def minutes(seconds: int) -> int:
    """Slurm counts minutes: seconds are rounded up, so that a Pod never gets less than it asked."""
    return -(-seconds // 60)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of value: its name, what is allowed (the end of a sentence), and its reader, which raises
    ValueError where a text is no such value."""

    name: str
    allowed: str
    read: Callable[[str], Any]


_A_TEXT = Kind("text", "a text that is not empty", _text)
_A_NUMBER = Kind("number", f"a whole number from 0 to {LARGEST}", _number)
_NODES = Kind("nodes", "a list of node names, like gpu[01-04],x5", _names)
_SHARING = Kind("word", "one of none, ok, user, mcs, topo, true, false", _shared)
_PATH = Kind("path", "an absolute path", _absolute_path)
_SECONDS = Kind("seconds", f"a whole number from 1 to {LARGEST}", _minutes)


@dataclass(frozen=True, slots=True)
class Annotation:
    """One row of the table."""

    name: str
    """What follows the prefix."""
    field: str
    """The job's field (`JobSpec`)."""
    kind: Kind
    sbatch: str
    """What it means: sbatch(1)'s option."""
    example: str
    note: str = ""
    """What else an author should know, in Markdown."""
    warning: str = ""
    """What every author who uses it is told."""


ANNOTATIONS: tuple[Annotation, ...] = (
    Annotation("account", "account", _A_TEXT, "--account", "physics"),
    Annotation("comment", "comment", _A_TEXT, "--comment", "nightly run"),
    Annotation("constraints", "constraints", _A_TEXT, "--constraint", "a100&nvme"),
    Annotation(
        "current-working-dir",
        "current_working_directory",
        _PATH,
        "--chdir",
        "/home/ana",
        "Of the job; the containers' own is `workingDir`.",
    ),
    Annotation(
        "excluded-nodes",
        "excluded_nodes",
        _NODES,
        "--exclude",
        "gpu[01-04],x5",
        "Nodes that Kubernetes closes to the Pod are added.",
    ),
    Annotation(
        "exclusive",
        "shared",
        _SHARING,
        "--exclusive, --oversubscribe",
        "user",
        "`none`: the whole node for this job; `ok`: cores may be shared; `user`, `mcs`: only with jobs"
        " of the same; `topo`: the whole topology segment. `true` is `none` and `false` is `ok`. Absent:"
        " what the partition says.",
    ),
    Annotation(
        "group-id", "group_id", _A_NUMBER, "--gid", "1000", "Absent: the same number as `user-id`."
    ),
    Annotation("partition", "partition", _A_TEXT, "--partition", "main", "Absent: Slurm's default."),
    Annotation("prefer", "prefer", _A_TEXT, "--prefer", "h100"),
    Annotation("priority", "priority", _A_NUMBER, "--priority", "1000"),
    Annotation("qos", "qos", _A_TEXT, "--qos", "high"),
    Annotation(
        "required-nodes",
        "required_nodes",
        _NODES,
        "--nodelist",
        "gpu07",
        "A node of the list that is deleted from Slurm fails the job at slurmctld's next restart, also"
        " a running one. `constraints` or a node selector leaves Slurm a choice.",
        "a node deleted from Slurm later fails the job",
    ),
    Annotation("reservation", "reservation", _A_TEXT, "--reservation", "maintenance"),
    Annotation(
        "timeout",
        "time_limit_minutes",
        _SECONDS,
        "--time",
        "3600",
        "Rounded up to minutes. Absent: see [Time limits](#time-limits).",
    ),
    Annotation("user-id", "user_id", _A_NUMBER, "--uid", "1000"),
)
_BY_NAME: Mapping[str, Annotation] = {row.name: row for row in ANNOTATIONS}


@dataclass(frozen=True, slots=True)
class Reading:
    """What annotations ask for. Problems and warnings are in words, each with where to read more."""

    fields: Mapping[str, Any]
    """Values for `JobSpec`, by field."""
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def read_annotations(
    annotations: Mapping[str, str], prefix: str = DEFAULT_PREFIX, page: str = DEFAULT_PAGE
) -> Reading:
    """Returns what the annotations under the prefix ask for. Never raises."""
    fields: dict[str, Any] = {}
    problems: list[str] = []
    warnings: list[str] = []
    for row in ANNOTATIONS:
        value = annotations.get(prefix + row.name)
        if value is None:
            continue
        about, see = f"annotation {prefix}{row.name}", f"({page}#{row.name})"
        try:
            fields[row.field] = row.kind.read(value)
        except ValueError:
            problems.append(f"{about}: {_shown(value)} is not {row.kind.allowed} {see}")
        else:
            warnings += [f"{about}: {row.warning} {see}"] if row.warning else []
    if "user_id" in fields:
        fields.setdefault("group_id", fields["user_id"])
    for name, meant in sorted(islice(_unknown(annotations, prefix), _MOST_UNKNOWN)):
        told = f"annotation {prefix}{name[:_SHOWN]} is unknown"
        if meant:
            problems.append(f"{told}: is {prefix}{meant} meant? ({page}#{meant})")
        else:
            warnings.append(f"{told} here, and does nothing ({page})")
    return Reading(fields, tuple(problems), tuple(warnings))


def _unknown(annotations: Iterable[str], prefix: str) -> Iterator[tuple[str, str]]:
    """Gives the names that no row has, each with the one that it was meant to be, if it is a near miss:
    the default prefix is another product's, which may have more of them."""
    for key in annotations:
        name = key.removeprefix(prefix)
        if name != key and name not in _BY_NAME:
            plain = name.lower().replace("_", "-")
            near = get_close_matches(plain, _BY_NAME, n=1, cutoff=_ALIKE)
            yield name, near[0] if near else ""


def _shown(value: str) -> str:
    """Unprintable characters are written out: what is shown is cut after that."""
    shown = repr(value[:_SHOWN])
    return shown if len(shown) <= _SHOWN + 2 else shown[:_SHOWN] + "..."
