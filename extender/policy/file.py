"""The format of a policy file, and the problems of a file with their lines.

The models here are the schema; `python -m extender.policy schema` prints it.
"""

import re
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    StringConstraints,
    ValidationError,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails

from extender.policy.rules import Choice, Policy, Rule
from extender.request.annotations import LARGEST, LONGEST_MINUTES
from slurm_client.ownership import OWNERS, may_own

_INTEGER = "tag:yaml.org,2002:int"
_DECIMAL = re.compile(r"-?(0|[1-9]\d*)", re.ASCII)
"""A loader of YAML without YAML 1.1's numbers: 010 is 8 there, 1_0 is 10 and 1:30 is 90."""
_Place = tuple[int | str, ...]
_SHOWN = 80
_WORDS = {
    "missing": "is missing",
    "string_type": "a text is needed; quote what YAML takes for something else",
    "list_type": "a list is needed, like [a, b]",
    "too_short": "must not be empty",
    "literal_error": "must be restricted or open",
}


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem of a file: the line (from 1; 0 is the whole), the field, and why."""

    line: int
    field: str
    why: str


class WrongPolicy(Exception):
    """The error for a policy that cannot be read; `lines` has every problem, in the form of a
    compiler's errors."""

    def __init__(self, path: Path, problems: list[Problem]) -> None:
        self.problems = tuple(sorted(problems, key=lambda one: one.line))
        self.lines = tuple(_told(path, one) for one in self.problems)
        super().__init__("; ".join(self.lines))


def _told(path: Path, problem: Problem) -> str:
    place = f"{path}:{problem.line}" if problem.line else str(path)
    return ": ".join(part for part in (place, problem.field, problem.why) if part)


def _number(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not may_own(value):
        raise ValueError(f"a number from {OWNERS}, is needed; names are not resolved")
    return value


def _user(value: Any) -> int | str:
    return "token" if value == "token" else _number(value)


def _allowed(value: Any) -> str:
    return "*" if value == "*" else str(_number(value))


_Number = Annotated[int, PlainValidator(_number, json_schema_input_type=int)]
_User = Annotated[int | str, PlainValidator(_user, json_schema_input_type=int | Literal["token"])]
_Allowed = Annotated[str, PlainValidator(_allowed, json_schema_input_type=int | Literal["*"])]
_Pattern = Annotated[str, StringConstraints(min_length=1, pattern=r"^[^\s,]+$")]
_NamePattern = Annotated[str, StringConstraints(pattern=r"^[a-z0-9.*?-]+$")]
"""Patterns of namespaces and ServiceAccounts, whose names are in lower case."""
_Name = Annotated[str, StringConstraints(pattern=r"^[^\s*?]+$")]

_Seconds = Annotated[int, Field(ge=1, le=60 * LONGEST_MINUTES)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, alias_generator=to_camel)


class Default(_Part):
    """The values of a job's fields where the Pod says nothing. Slurm decides fields that have no value
    here."""

    user: _User | None = Field(
        None, description="uid of the job's owner; `token`: the user of the extender's token"
    )
    group: _Number | None = Field(None, description="gid; else the same number as the user")
    account: _Name | None = None
    partition: _Name | None = Field(None, description="or several: a,b")
    qos: _Name | None = None
    reservation: _Name | None = None
    timeout: _Seconds | None = Field(
        None, description="seconds, rounded up to minutes; else maxTimeout, else the partition's limit"
    )


class Allow(_Part):
    """The values that a Pod may ask for besides the default: patterns like `gpu-*`, in which * is
    anything."""

    users: list[_Allowed] = Field([], description="for user-id: uids, or *")
    groups: list[_Allowed] = Field([], description="for group-id: gids, or *")
    accounts: list[_Pattern] = []
    partitions: list[_Pattern] = []
    qos: list[_Pattern] = []
    reservations: list[_Pattern] = []
    max_priority: int | None = Field(
        None, ge=0, le=LARGEST, description="the largest value of the annotation priority; absent: none"
    )
    max_timeout: _Seconds | None = Field(
        None, description="the longest time limit, in seconds; absent: any"
    )


class RuleModel(_Part):
    """What Pods of some namespaces and ServiceAccounts may ask for; the first that matches counts."""

    name: str | None = Field(None, min_length=1, description="for messages; else the rule's number")
    namespaces: list[_NamePattern] = Field(min_length=1)
    service_accounts: list[_NamePattern] = Field(["*"], min_length=1)
    default: Default = Default()
    allow: Allow = Allow()

    @model_validator(mode="after")
    def _gives_a_user(self) -> Self:
        if self.default.user is None and not self.allow.users:
            raise ValueError("gives no user: set default.user or allow.users")
        return self


class PolicyModel(_Part):
    """The content of a policy file: which Pods may ask Slurm for what."""

    preset: Literal["restricted", "open"] = Field(
        "restricted", description="what Pods may ask for that no rule is for: nothing, or anything"
    )
    rules: list[RuleModel] = []
    pod_users: list[_User] = Field(
        [],
        description="uids of users that only Pods have, so that no native job is theirs; `token`: the"
        " user of the extender's token",
    )


def schema() -> dict[str, Any]:
    """Returns the format's JSON Schema."""
    return PolicyModel.model_json_schema()


def read(path: Path) -> Policy:
    """Returns the policy in a file. Raises WrongPolicy with everything that is wrong."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise WrongPolicy(path, [Problem(0, "", f"cannot be read: {error}")]) from error
    document = _Document(text)
    model = document.read()
    if model is None or document.problems:
        raise WrongPolicy(path, document.problems)
    return _policy(model)


def _policy(model: PolicyModel) -> Policy:
    rules = tuple(_rule(rule, number) for number, rule in enumerate(model.rules, 1))
    pod_users = frozenset(None if isinstance(user, str) else user for user in model.pod_users)
    return Policy(rules, model.preset == "open", pod_users)


def _rule(model: RuleModel, number: int) -> Rule:
    default, allow = model.default, model.allow
    token = default.user == "token"
    return Rule(
        name=model.name or str(number),
        namespaces=tuple(model.namespaces),
        service_accounts=tuple(model.service_accounts),
        token=token,
        user=Choice(None if token else default.user, tuple(allow.users)),
        group=Choice(default.group, tuple(allow.groups)),
        fields={
            "account": Choice(default.account, tuple(allow.accounts)),
            "partition": Choice(default.partition, tuple(allow.partitions)),
            "qos": Choice(default.qos, tuple(allow.qos)),
            "reservation": Choice(default.reservation, tuple(allow.reservations)),
        },
        max_priority=allow.max_priority,
        timeout_minutes=_minutes(default.timeout),
        max_timeout_minutes=_minutes(allow.max_timeout),
    )


def _minutes(seconds: int | None) -> int | None:
    return None if seconds is None else ceil(seconds / 60)


# What the file says, and where


class _Document:
    """A file's text, the line of each part of it, and what is wrong with it."""

    def __init__(self, text: str) -> None:
        self.problems: list[Problem] = []
        self._text = text
        self._lines: dict[_Place, int] = {(): 1}
        self._seen: set[int] = set()

    def read(self) -> PolicyModel | None:
        """Returns what the text says, None where it is not of this format."""
        try:
            loader = yaml.SafeLoader(self._text)
            root = loader.get_single_node()
            if root is None:
                self._wrong(0, (), "is empty: `preset: restricted` is the least")
                return None
            self._note(root)
            return PolicyModel.model_validate(loader.construct_document(root))
        except ValidationError as error:
            for each in error.errors():
                self._wrong(self._line(each["loc"]), each["loc"], _why(each))
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            self._wrong(mark.line + 1 if mark else 0, (), f"not YAML: {error.problem}")
        except Exception as error:  # noqa: BLE001 -- PyYAML lets through what Python makes of odd values
            self._wrong(0, (), f"not YAML: {error}")
        return None

    def _wrong(self, line: int, place: _Place, why: str) -> None:
        self.problems.append(Problem(line, _path(place), why))

    def _line(self, place: _Place) -> int:
        """Returns the line of a field; for a missing field the line of the enclosing mapping."""
        known = (place[:length] for length in range(len(place), -1, -1))
        return next(self._lines[one] for one in known if one in self._lines)

    def _note(self, node: yaml.Node, place: _Place = ()) -> None:
        """Notes the lines of this part and its children; a part that an alias repeats has its first
        line."""
        self._lines.setdefault(place, node.start_mark.line + 1)
        if id(node) in self._seen:
            return
        self._seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            for index, each in enumerate(node.value):
                self._note(each, (*place, index))
        elif node.tag == _INTEGER and not _DECIMAL.fullmatch(node.value):
            self._wrong(node.start_mark.line + 1, place, f"{node.value} is not a plain decimal number")
        elif isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                self._note_field(key, value, (*place, str(key.value)))

    def _note_field(self, key: yaml.Node, value: yaml.Node, place: _Place) -> None:
        """Notes keys that occur twice as problems: YAML readers silently take the last, and a policy
        must not depend on it."""
        line = key.start_mark.line + 1
        if place in self._lines:
            self._wrong(line, place, f"is there already, in line {self._lines[place]}")
            return
        self._lines[place] = line
        self._note(value, place)


def _path(place: _Place) -> str:
    """Returns a path as Kubernetes writes it: rules[0].allow.users[1]."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    return "".join(parts).removeprefix(".")


def _why(error: ErrorDetails) -> str:
    kind, place = error["type"], error["loc"]
    match kind:
        case "extra_forbidden":
            return f"is no field here; there are {_fields(place)}"
        case "model_type":
            return f"has fields: {_fields((*place, ''))}"
        case "string_pattern_mismatch":
            return f"{str(error['input'])[:_SHOWN]!r} does not match {error['ctx']['pattern']}"
    return _WORDS.get(kind) or error["msg"].removeprefix("Value error, ")


def _fields(place: _Place) -> str:
    """Returns the fields that there are in this place."""
    deep: type[BaseModel] = Default if "default" in place else Allow
    known: dict[int, type[BaseModel]] = {1: PolicyModel, 3: RuleModel}
    return ", ".join(str(one.alias) for one in known.get(len(place), deep).model_fields.values())
