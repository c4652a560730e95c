"""The format of a policy file, as pydantic models. `python -m extender.policy schema` prints the JSON
Schema of the models."""

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, StringConstraints, model_validator
from pydantic.alias_generators import to_camel

from extender.pod_request.annotations import LARGEST, LONGEST_MINUTES, minutes
from extender.policy.rules import Choice, Policy, Rule
from service import yaml_file
from slurm_client.ownership import OWNERS, may_own


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
    """Values of a job's fields if the Pod requests no value. Slurm decides fields without a
    default."""

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
    """Values that a Pod may request besides the default: patterns like `gpu-*`, in which * is any
    text."""

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
    """Values that Pods of some namespaces and ServiceAccounts may request. The first matching rule
    applies."""

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
    """Content of a policy file: the values that each Pod may request from Slurm."""

    preset: Literal["restricted", "open"] = Field(
        "restricted",
        description="requests of Pods without a rule: `restricted` allows none, `open` allows all",
    )
    rules: list[RuleModel] = []
    pod_users: list[_User] = Field(
        [],
        description="uids of users that only Pods use, so that these users own no native job;"
        " `token`: the user of the extender's token",
    )


def schema() -> dict[str, Any]:
    """Returns the format's JSON Schema."""
    return PolicyModel.model_json_schema()


def read(path: Path) -> Policy:
    """Returns the policy in a file. Raises WrongFile with every problem."""
    model = yaml_file.read(path, PolicyModel, "preset: restricted")
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
    return None if seconds is None else minutes(seconds)
