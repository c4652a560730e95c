"""The id and the key of a placeholder job: the id can be computed, and the key proves which Pod the job
stands for.

Root and SlurmUser may choose a job's id. A placeholder's id is a function of (cluster, workload,
attempt, try), in a range that Slurm's own sequence does not reach. So a submission can be repeated, and
found again after a crash, without a record of it anywhere. Two workloads may hash to one id; the key in
`admin_comment`, which users cannot set, tells them apart, and the second workload takes its next try.
"""

from dataclasses import dataclass
from hashlib import blake2b
from typing import Self

_KEY_PREFIX = "slurm-extender"
_LONGEST_NUMBER = 10
ADOPTED_ATTEMPT = 0
"""The attempt in the key of an adopted Pod's job (`adoption`): another scheduler placed that Pod."""
TRIES_AT_RECOVERY = 4
"""How many tries of an attempt recovery asks Slurm about before it sends anything."""


def whole_number(text: str) -> int | None:
    """Returns the number that a text states, None where neither Slurm nor the extender writes such a
    text.

    Everybody that may edit a Pod may write its annotations: no value of one may raise an error.
    """
    plain = text.isascii() and text.isdecimal() and len(text) <= _LONGEST_NUMBER
    return int(text) if plain else None


def job_name(namespace: str, name: str) -> str:
    """Returns the name of a Pod's job in Slurm. The part that differs between Pods comes first, since
    plain squeue shows eight columns. Neither part can contain the sign between them."""
    return f"{name}@{namespace}"


@dataclass(frozen=True, slots=True)
class JobIdRange:
    """The ids reserved for placeholders: first <= id < end.

    Slurm's MaxJobId bounds the ids that slurmctld gives by itself, and not the ids that a request names
    (24.11 and 26.05, job_mgr.c): set to `first`, it keeps native jobs out of the range. So the range
    does not depend on it, and no id changes with it. `end` is its default; slurmrestd takes ids below
    2^26 - 1, and slurmctld uses the higher bits for federations."""

    first: int = 1 << 25
    end: int = 67_043_328

    def __post_init__(self) -> None:
        if not 0 < self.first < self.end:
            raise ValueError(f"job id range {self.first}..{self.end} is empty")

    def __contains__(self, job_id: object) -> bool:
        return isinstance(job_id, int) and self.first <= job_id < self.end


def encroaching(latest: int | None, max_job_id: int | None, ids: JobIdRange) -> str | None:
    """Returns a warning where the ids that slurmctld gives by itself are in the placeholders' range, or
    in the last tenth before it; None where they are not, or begin anew before they are.

    `latest` is the newest or the next of them, `max_job_id` is Slurm's MaxJobId; None is not known."""
    if latest is None:
        return None
    if latest in ids:
        where = "has come into"
    elif ids.first * 9 // 10 <= latest < ids.first and not (max_job_id and max_job_id <= ids.first):
        where = "comes near"
    else:
        return None
    return (
        f"Slurm's own count of job ids {where} the placeholders' range ({ids.first} to {ids.end - 1}):"
        f" it is at {latest}; set MaxJobId={ids.first} in slurm.conf (of several clusters the lowest"
        " first id), so that it begins anew"
    )


@dataclass(frozen=True, slots=True)
class PlaceholderKey:
    """The name of one submission: the workload, the attempt to place it, and the try of that attempt.

    A new attempt follows a placement that could not be used; a new try follows an id that could not be
    used.
    """

    cluster: str
    namespace: str
    name: str
    uid: str
    attempt: int
    attempt_try: int = 0

    def job_id(self, ids: JobIdRange) -> int:
        """Returns the id under which this submission is sent to Slurm, always the same one."""
        seed = f"{self.cluster}/{self.uid}/{self.attempt}/{self.attempt_try}".encode()
        number = int.from_bytes(blake2b(seed, digest_size=8).digest(), "big")
        return ids.first + number % (ids.end - ids.first)

    @property
    def adopted(self) -> bool:
        """Tells whether the job stands for a Pod that another scheduler bound."""
        return self.attempt == ADOPTED_ATTEMPT

    def __str__(self) -> str:
        """Returns the text for `admin_comment`. No part of it can hold a slash."""
        return (
            f"{_KEY_PREFIX}/{self.cluster}/{self.namespace}/{self.name}/{self.uid}"
            f"/{self.attempt}.{self.attempt_try}"
        )

    @classmethod
    def parse(cls, admin_comment: str) -> Self | None:
        """Returns the key in an `admin_comment`, or None where the comment is not a placeholder's."""
        match admin_comment.split("/"):
            case [prefix, cluster, namespace, name, uid, numbers] if prefix == _KEY_PREFIX:
                before, _, after = numbers.partition(".")
                attempt, attempt_try = whole_number(before), whole_number(after)
                if attempt is not None and attempt_try is not None:
                    return cls(cluster, namespace, name, uid, attempt, attempt_try)
        return None
