"""Reads the annotations that the author of a Pod writes, by one table with a reader for each type of
value.

Each annotation means the same as an option of sbatch(1). The policy decides which Pod may have which
values. `extender.pages` makes the page for authors from the same table.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import islice
from typing import Any, Self

from extender.pod_request.limits import MOST_BRACKETS, MOST_NAMES, BeyondLimitError, beyond
from slurm_client import hostlist
from slurm_client.model import MOST_BYTES, MOST_PATH_BYTES, Sharing
from slurm_client.ownership import OWNERS, may_own
from wellknown.job_key import whole_number
from wellknown.names import DEFAULT_PREFIX
from wellknown.quoting import printable, quoted

DEFAULT_PAGE = "docs/reference/annotations.md"
"""Path of the page about annotations, in the checkout. Every message to a Pod's author has a link to
this page."""
PUBLISHED = "https://github.com/slurm-extender/slurm-extender/blob/main/"  # the public pages

# Older spellings: "true" means none, and "false" means ok.
_SHARED = {
    "none": Sharing.NONE,
    "true": Sharing.NONE,
    "ok": Sharing.ALLOWED,
    "false": Sharing.ALLOWED,
    "user": Sharing.USER,
    "mcs": Sharing.MCS,
    "topo": Sharing.TOPO,
}

LARGEST = 0xFFFF_FFFD  # the two largest numbers of 32 bits mean "infinite" and "not set" in Slurm
LONGEST_MINUTES = 365 * 24 * 60
"""The longest time limit of an annotation. Slurm's backfill scheduler plans the same time for a job
without a limit. With a waiting job of 78 years, the scheduler of Slurm 24.11 plans for ever, and
slurmctld answers no calls."""
_MOST_SECONDS = 60 * LONGEST_MINUTES
_SHOWN = 60
_MOST_UNKNOWN = 15  # unknown names in messages, because a Pod may have any number of unknown names
_ALIKE = 0.8  # least difflib ratio of similar names: one letter of five may differ
_COUNTED = 10_000  # names of a list are counted up to this number
_LONGEST = 1 << 18  # kube-apiserver's limit on all annotations of an object together
CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""Characters that end a line, move a terminal's cursor, or reverse a text. Such characters could forge
lines in Slurm's output. NUL is included, because Slurm ends a text at a NUL."""
_NAME = re.compile(r"[a-z0-9](?:[-.a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
LARGEST_GANG = 2048
"""Most Pods of a gang. kube-scheduler holds a call of /bind for each of these Pods at the same time."""
_NODE_NAMES = re.compile(r"[\w.\[\],\s-]*+", re.ASCII)


def _text(value: str, most: int = MOST_BYTES) -> str:
    text = value.strip()  # a YAML block ends with a newline
    if not text or len(text.encode()) > most or CONTROLS.search(text):
        raise ValueError
    return text


def _list(value: str) -> str:
    """Returns the names as Slurm writes a list: separated by commas, without blanks."""
    names = dict.fromkeys(name.strip() for name in _text(value).split(","))
    return _text(",".join(filter(None, names)))


def _number(value: str) -> int:
    number = whole_number(value.strip())
    if number is None or number > LARGEST:
        raise ValueError
    return number


def _owner(value: str) -> int:
    number = _number(value)
    if not may_own(number):
        raise ValueError
    return number


def _nodes(value: str) -> tuple[str, ...]:
    """Reads names of nodes or hostlist expressions, like "gpu[01-04,09],x5". Returns all names as one
    compressed expression."""
    if (brackets := value.count("[")) > MOST_BRACKETS:
        raise BeyondLimitError(beyond("brackets", brackets, MOST_BRACKETS))
    well_formed = len(value) <= _LONGEST and _NODE_NAMES.fullmatch(value)
    number = hostlist.count(value, _COUNTED) if well_formed else 0
    if number > MOST_NAMES:
        many = number if number <= _COUNTED else f"more than {_COUNTED}"
        raise BeyondLimitError(beyond("node names", many, MOST_NAMES))
    names = hostlist.expand(value, MOST_NAMES) if well_formed else ()
    if not names:
        raise ValueError
    return (hostlist.compress(names),)


def _shared(value: str) -> Sharing:
    try:
        return _SHARED[value.strip()]
    except KeyError:
        raise ValueError from None


def _absolute_path(value: str) -> str:
    if not value.startswith("/"):
        raise ValueError
    return _text(value, MOST_PATH_BYTES)


def _name(value: str) -> str:
    name = value.strip()
    if not _NAME.fullmatch(name):
        raise ValueError
    return name


def _size(value: str) -> int:
    number = _number(value)
    if not 0 < number <= LARGEST_GANG:
        raise ValueError
    return number


def _minutes(value: str) -> int:
    seconds = _number(value)
    if not 0 < seconds <= _MOST_SECONDS:
        raise ValueError
    return minutes(seconds)


def minutes(seconds: int) -> int:
    """Returns a time in minutes, the unit of Slurm's time limits. The result is rounded up, so that a
    Pod never gets less than the requested time."""
    return -(-seconds // 60)


@dataclass(frozen=True, slots=True)
class ValueType:
    """A type of an annotation's value. `allowed` describes the valid texts at the end of a message.
    `read` returns the value of a text, and raises ValueError for an invalid text."""

    name: str
    allowed: str
    read: Callable[[str], Any]


_ON_ONE_LINE = "without line ends or other control characters"
_A_TEXT = ValueType("text", f"a text of 1 to {MOST_BYTES} bytes {_ON_ONE_LINE}", _text)
_A_LIST = ValueType("names", f"names, like a,b, of 1 to {MOST_BYTES} bytes {_ON_ONE_LINE}", _list)
_A_NUMBER = ValueType("number", f"a whole number from 0 to {LARGEST}", _number)
_AN_OWNER = ValueType("number", f"a whole number from {OWNERS}", _owner)
_NODES = ValueType("nodes", f"a list of at most {MOST_NAMES} node names, like gpu[01-04],x5", _nodes)
_SHARING = ValueType("word", "one of none, ok, user, mcs, topo, true, false", _shared)
_PATH = ValueType(
    "path", f"an absolute path of at most {MOST_PATH_BYTES} bytes {_ON_ONE_LINE}", _absolute_path
)
_A_NAME = ValueType(
    "name", "a name of at most 63 lower-case letters, digits, - and ., like a Pod's name", _name
)
_A_SIZE = ValueType("number", f"a whole number from 1 to {LARGEST_GANG}", _size)
_SECONDS = ValueType("seconds", f"a whole number from 1 to {_MOST_SECONDS}, 365 days", _minutes)


@dataclass(frozen=True, slots=True)
class Annotation:
    """An annotation, as one row of the table."""

    name: str  # without the prefix
    field: str  # of `JobSpec`, or of `Gang`
    kind: ValueType
    sbatch: str  # the option of sbatch(1) with this meaning
    example: str
    note: str = ""  # text on the page for authors, in Markdown
    warning: str = ""  # warning to the author of each Pod with the annotation

    def noted(self, note: str, warning: str = "") -> Self:
        """Returns the row with a note and a warning."""
        return replace(self, note=note, warning=warning)


JOB_ANNOTATIONS: tuple[Annotation, ...] = (
    Annotation("account", "account", _A_TEXT, "--account", "physics").noted(
        "Absent: the user's default account. Slurm changes the name to lower case."
    ),
    Annotation("comment", "comment", _A_TEXT, "--comment", "nightly run").noted(
        "After the job, `sacct` shows the comment and the end of the Pod, if AccountingStoreFlags has"
        " `job_comment`."
    ),
    Annotation("constraints", "constraints", _A_TEXT, "--constraint", "a100&nvme").noted(
        "A Pod has one node: a count (`nvme*2`) is invalid."
    ),
    Annotation("current-working-dir", "current_working_directory", _PATH, "--chdir", "/home/ana").noted(
        "The directory of the job, not of the containers (`workingDir`)."
    ),
    Annotation("excluded-nodes", "excluded_nodes", _NODES, "--exclude", "gpu[01-04],x5").noted(
        "The extender adds the Nodes that Kubernetes closes to the Pod."
    ),
    Annotation("exclusive", "shared", _SHARING, "--exclusive, --oversubscribe", "user").noted(
        "See [Sharing a node](#sharing-a-node). Absent: the partition decides. For a Pod with GPUs"
        " `none`, or `user`, unless [Shared GPUs](#shared-gpus) allows more."
    ),
    Annotation("group-id", "group_id", _AN_OWNER, "--gid", "1000").noted(
        "Absent: the same number as `user-id`."
    ),
    Annotation("partition", "partition", _A_LIST, "--partition", "main").noted(
        "A list (`main,spare`): the partition in which the job starts first. Absent: Slurm's default."
    ),
    Annotation("prefer", "prefer", _A_TEXT, "--prefer", "h100").noted(
        "Slurm first tries `prefer` **instead of** `constraints`: repeat mandatory features here."
        " Without such a free node, `constraints` decides."
    ),
    Annotation("priority", "priority", _A_NUMBER, "--priority", "1000").noted(
        "0 holds the job until an administrator of Slurm releases the job."
    ),
    Annotation("qos", "qos", _A_LIST, "--qos", "high").noted("Absent: the user's default QOS."),
    Annotation("required-nodes", "required_nodes", _NODES, "--nodelist", "gpu07").noted(
        "Slurm chooses one of several names. Read the [warning](#nodes-by-name).",
        "a node deleted from Slurm later fails the job",
    ),
    Annotation("reservation", "reservation", _A_LIST, "--reservation", "maintenance"),
    Annotation("timeout", "time_limit_minutes", _SECONDS, "--time", "3600").noted(
        "Rounded up to minutes. Absent: see [Time limits](#time-limits)."
    ),
    Annotation("user-id", "user_id", _AN_OWNER, "--uid", "1000"),
)
GANG_ANNOTATIONS: tuple[Annotation, ...] = (
    Annotation("gang", "gang", _A_NAME, "--job-name", "train").noted(
        "Pods of a namespace with the same name get one job, and start together. The words `job`,"
        " `jobset`, `lws` and `podgroup` mean the Pods of a controller or of a PodGroup; `none` means no"
        " gang. See [Gangs](#gangs)."
    ),
    Annotation("gang-size", "gang_size", _A_SIZE, "--ntasks", "8").noted(
        "The number of Pods in the gang. The extender requests the job after the last Pod exists. With"
        " `job`, `jobset`, `lws` and `podgroup`, the extender finds the number."
    ),
    Annotation("members-per-node", "members_per_node", _A_SIZE, "--ntasks-per-node", "4").noted(
        "A divisor of `gang-size`. Absent: as few nodes as possible."
    ),
    Annotation("segment", "segment", _A_SIZE, "--segment", "4").noted(
        "The number of nodes that Slurm keeps together in a block (topology/block). Needs"
        " `members-per-node`, and is a divisor of the number of nodes."
    ),
    Annotation("switches", "switches", _A_SIZE, "--switches", "1").noted(
        "The largest number of leaf switches (topology/tree). Slurm waits for such nodes for a limited"
        " time (`max_switch_wait`)."
    ),
)
ANNOTATIONS = (*JOB_ANNOTATIONS, *GANG_ANNOTATIONS)
FIELD_NAMES: Mapping[str, str] = {row.field: row.name for row in ANNOTATIONS}


@dataclass(frozen=True, slots=True)
class ParsedAnnotations:
    """The request that a Pod's annotations make. Problems and warnings are sentences with a link to the
    page."""

    fields: Mapping[str, Any]  # of `JobSpec` and `Gang`
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def over(self, others: Self) -> Self:
        """Returns both requests as one. If both requests have a value for a field, the value of `self`
        counts."""
        return replace(
            self,
            fields={**others.fields, **self.fields},
            problems=(*self.problems, *others.problems),
            warnings=(*self.warnings, *others.warnings),
        )


def read_annotations(
    annotations: Mapping[str, str], prefix: str = DEFAULT_PREFIX, page: str = DEFAULT_PAGE
) -> ParsedAnnotations:
    """Returns the request of the annotations whose names begin with the prefix. Never raises."""
    return read_table(annotations, prefix, ANNOTATIONS, lambda name: f"({page}{name and f'#{name}'})")


def read_table(
    annotations: Mapping[str, str],
    prefix: str,
    table: Iterable[Annotation],
    see: Callable[[str], str],
) -> ParsedAnnotations:
    """Returns the request of the annotations whose names begin with the prefix. `table` lists the known
    annotations. `see` returns the link for the end of a message, and takes the name of a row, or "" for
    no row. Never raises."""
    fields: dict[str, Any] = {}
    problems: list[str] = []
    warnings: list[str] = []
    rows = {row.name: row for row in table}
    for name, row in rows.items():
        value = annotations.get(prefix + name)
        if value is None:
            continue
        about = f"annotation {prefix}{name}"
        try:
            fields[row.field] = row.kind.read(value)
        except BeyondLimitError as error:
            problems.append(f"{about}: {error} {see(name)}")
        except ValueError:
            problems.append(f"{about}: {quoted(value)} is not {row.kind.allowed} {see(name)}")
        else:
            warnings += [f"{about}: {row.warning} {see(name)}"] if row.warning else []
    for name, meant in sorted(islice(_unknown(annotations, prefix, rows), _MOST_UNKNOWN)):
        words = f"annotation {prefix}{printable(name[:_SHOWN])[:_SHOWN]} is unknown"
        if meant:
            problems.append(f"{words}: did you mean {prefix}{meant}? {see(meant)}")
        else:
            warnings.append(f"{words} here, and does nothing {see('')}")
    return ParsedAnnotations(fields, tuple(problems), tuple(warnings))


def _unknown(
    annotations: Iterable[str], prefix: str, known: Collection[str]
) -> Iterator[tuple[str, str]]:
    """Yields each unknown name, with a similar known name or "". An unknown name may be correct, because
    another product may use the same prefix for further annotations."""
    for key in annotations:
        name = key.removeprefix(prefix)
        if name != key and name not in known:
            plain = name.lower().replace("_", "-") if len(name) <= _SHOWN else ""
            near = get_close_matches(plain, known, n=1, cutoff=_ALIKE)
            yield name, near[0] if near else ""
