"""The format of the file of accounts, and its validation.

    prune: false
    qos:
      - name: high
        priority: 100
        preempt: [normal]
        limits: {MaxJobsPerUser: 4, MaxTRESPerUser: gres/gpu=8, MaxWall: 2-00:00:00}
    accounts:
      - name: research
        qos: [normal, high]
        limits: {GrpTRES: gres/gpu=32}
        coordinators: [alice]
      - name: vision
        parent: research
    users:
      - name: alice
        accounts: [{name: vision, fairshare: 10}]

Names and limits are as in sacctmgr(1). The file describes each object completely, so a limit that is not
in the file is removed.
"""

from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

NORMAL: Final = "normal"
ROOT: Final = "root"
LEAST: Final = "accounts: []"
"""The shortest valid file."""
Name = Annotated[str, Field(pattern=r"^[a-z0-9_][a-z0-9_.-]*$", max_length=64)]
"""slurmdbd stores names in lower case."""
Limits = dict[str, str | int]
Flag = Literal[
    "DenyOnLimit",
    "EnforceUsageThreshold",
    "NoDecay",
    "NoReserve",
    "OverPartQOS",
    "PartitionMaxNodes",
    "PartitionMinNodes",
    "PartitionTimeLimit",
    "Relative",
    "RequiresReservation",
    "UsageFactorSafe",
]
"""Flags in sacctmgr(1), SPECIFICATIONS FOR QOS. sacctmgr drops other flags without an error."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, populate_by_name=True)


class Qos(_Model):
    """A quality of service."""

    name: Name
    priority: int = Field(default=0, ge=0)
    flags: list[Flag] = []
    preempt: list[Name] = []
    grace_time: int = Field(default=0, ge=0, alias="graceTime")
    """Grace time in seconds."""
    preempt_mode: Literal["cluster", "cancel", "requeue", "suspend"] = Field(
        "cluster", alias="preemptMode"
    )
    """How Slurm preempts jobs of this QOS. "cluster" means PreemptMode of slurm.conf."""
    preempt_exempt_time: int | None = Field(default=None, ge=0, alias="preemptExemptTime")
    """Exempt time in seconds. None means PreemptExemptTime of slurm.conf."""
    usage_factor: float = Field(default=1.0, ge=0, alias="usageFactor", strict=False)
    usage_threshold: float | None = Field(default=None, ge=0, alias="usageThreshold", strict=False)
    limit_factor: float | None = Field(default=None, ge=0, alias="limitFactor", strict=False)
    limits: Limits = {}


class _Association(_Model):
    """Fields of a user or an account in Slurm's tree of associations."""

    fairshare: Annotated[int, Field(ge=0)] | Literal["parent"] = 1
    """Number of shares. "parent" means that children use the shares of the parent account."""
    priority: int | None = Field(default=None, ge=0)
    qos: list[Name] = []
    """Allowed QOS. An empty list means the QOS of the parent account."""
    default_qos: Name | None = Field(default=None, alias="defaultQos")
    limits: Limits = {}


class Account(_Association):
    """An account below another account."""

    name: Name
    parent: Name = ROOT
    description: str | None = None
    organization: str | None = None
    coordinators: list[Name] = []
    """Users who may change this account, the accounts below it, and the users in all these accounts."""


class Membership(_Association):
    """A user in an account, in one partition or in all partitions."""

    name: Name
    partition: str = ""


class User(_Model):
    """A user with at least one account."""

    name: Name
    admin_level: Literal["None", "Operator", "Administrator"] = Field("None", alias="adminLevel")
    default_account: Name | None = Field(default=None, alias="defaultAccount")
    """Default account. None means the first account."""
    accounts: list[Membership] = Field(min_length=1)


class Document(_Model):
    """The content of the file."""

    prune: bool = False
    """True if objects that are not in the file are removed from slurmdbd."""
    qos: list[Qos] = []
    accounts: list[Account] = []
    users: list[User] = []
