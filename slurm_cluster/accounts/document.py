"""The file of accounts: its form, and what is wrong with it by itself.

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

Names and limits are sacctmgr(1)'s. What the file says of an object is all of it: a limit that is not
there is none.
"""

from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

NORMAL: Final = "normal"
ROOT: Final = "root"
LEAST: Final = "accounts: []"
"""The shortest file that says anything."""
Name = Annotated[str, Field(pattern=r"^[a-z0-9_][a-z0-9_.-]*$", max_length=64)]
"""slurmdbd keeps names in lower case."""
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
"""sacctmgr(1), SPECIFICATIONS FOR QOS. Others it takes and forgets."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, populate_by_name=True)


class Qos(_Model):
    """A quality of service."""

    name: Name
    priority: int = Field(default=0, ge=0)
    flags: list[Flag] = []
    preempt: list[Name] = []
    grace_time: int = Field(default=0, ge=0, alias="graceTime")
    """Seconds."""
    preempt_mode: Literal["cluster", "cancel", "requeue", "suspend"] = Field(
        "cluster", alias="preemptMode"
    )
    """How jobs of this QOS make room; "cluster": by slurm.conf's PreemptMode."""
    preempt_exempt_time: int | None = Field(default=None, ge=0, alias="preemptExemptTime")
    """Seconds; None: slurm.conf's."""
    usage_factor: float = Field(default=1.0, ge=0, alias="usageFactor", strict=False)
    usage_threshold: float | None = Field(default=None, ge=0, alias="usageThreshold", strict=False)
    limit_factor: float | None = Field(default=None, ge=0, alias="limitFactor", strict=False)
    limits: Limits = {}


class _Association(_Model):
    """What a user or an account has in Slurm's tree."""

    fairshare: Annotated[int, Field(ge=0)] | Literal["parent"] = 1
    """"parent": the account above shares for all below it."""
    priority: int | None = Field(default=None, ge=0)
    qos: list[Name] = []
    """None: those of the account above."""
    default_qos: Name | None = Field(default=None, alias="defaultQos")
    limits: Limits = {}


class Account(_Association):
    """An account below another one."""

    name: Name
    parent: Name = ROOT
    description: str | None = None
    organization: str | None = None
    coordinators: list[Name] = []
    """Users who may change the account, those below it, and their users."""


class Membership(_Association):
    """A user in an account, in one partition or in all."""

    name: Name
    partition: str = ""


class User(_Model):
    """A user, who has at least one account."""

    name: Name
    admin_level: Literal["None", "Operator", "Administrator"] = Field("None", alias="adminLevel")
    default_account: Name | None = Field(default=None, alias="defaultAccount")
    """None: the first."""
    accounts: list[Membership] = Field(min_length=1)


class Document(_Model):
    """The file."""

    prune: bool = False
    """Whether what is not in the file is removed."""
    qos: list[Qos] = []
    accounts: list[Account] = []
    users: list[User] = []
