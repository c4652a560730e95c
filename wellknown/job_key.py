"""The id and the key of a placeholder job: the id can be computed, and the key names the workload.

Root and SlurmUser may choose a job's id. A placeholder's id is a function of (cluster, workload,
attempt, try), in a range that Slurm's own sequence does not reach. After a crash, the extender can
therefore repeat or find a submission without any record. Two workloads may get the same id. Then the key
in `admin_comment` distinguishes the workloads, because users cannot set `admin_comment`. The second
workload takes the next try.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Self

_KEY_PREFIX = "slurm-extender"
_LONGEST_NUMBER = 10
_GENERATION_DIGITS = 8  # of a random uid, so that two gangs rarely have the same digits
ADOPTED_ATTEMPT = 0
"""Attempt in the key of an adopted Pod's job (`adoption`): another scheduler placed the Pod."""
TRIES_AT_RECOVERY = 4
"""Number of tries of an attempt that recovery looks up in Slurm before the first request."""


def whole_number(text: str) -> int | None:
    """Returns the number in a text; None for a text that neither Slurm nor the extender writes.

    Any user with the right to edit a Pod may write annotations, so no value may raise an error.
    """
    plain = text.isascii() and text.isdecimal() and len(text) <= _LONGEST_NUMBER
    return int(text) if plain else None


def generation_of(uids: Iterable[str]) -> str:
    """Returns the generation of a gang's Pods: the first digits of the lowest uid."""
    return min(uids, default="")[:_GENERATION_DIGITS]


def job_name(namespace: str, name: str) -> str:
    """Returns the name of a Pod's job in Slurm. The Pod's name comes first, because plain squeue shows
    eight columns. Names and namespaces cannot contain the sign "@"."""
    return f"{name}@{namespace}"


@dataclass(frozen=True, slots=True)
class JobIdRange:
    """The ids reserved for placeholders: first <= id < end.

    Slurm's MaxJobId bounds the ids that slurmctld chooses, not the ids of requests (24.11 and 26.05,
    job_mgr.c). MaxJobId=`first` keeps native jobs out of the range. The range does not depend on
    MaxJobId, and no id changes with MaxJobId. `end` is the default of MaxJobId; slurmrestd accepts ids
    below 2^26 - 1, and slurmctld uses the higher bits for federations.
    """

    first: int = 1 << 25
    end: int = 67_043_328

    def __post_init__(self) -> None:
        if not 0 < self.first < self.end:
            raise ValueError(f"job id range {self.first}..{self.end} is empty")

    def __contains__(self, job_id: object) -> bool:
        return isinstance(job_id, int) and self.first <= job_id < self.end


def encroaching(latest: int | None, max_job_id: int | None, ids: JobIdRange) -> str | None:
    """Returns a warning if slurmctld chooses ids in the placeholders' range, or in the last tenth before
    the range; None if not, or if MaxJobId ends the sequence before the range.

    `latest` is the newest or next id of slurmctld, `max_job_id` is MaxJobId; None if not known.
    """
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
        " first id), so that the count starts again"
    )


@dataclass(frozen=True, slots=True)
class PlaceholderKey:
    """The name of one submission: the workload, the attempt to place the workload, and the attempt's
    try.

    A new attempt follows a placement that could not be used; a new try follows an id that could not be
    used.
    """

    cluster: str
    namespace: str
    name: str
    uid: str
    attempt: int
    attempt_try: int = 0
    generation: str = ""
    """Marks the Pods of a gang at the time of the submission (`generation_of`); "" for a single Pod. Two
    gangs with one name, one after the other, have the same uid, and so the same job ids."""

    def job_id(self, ids: JobIdRange) -> int:
        """Returns the id of this submission in Slurm, always the same id."""
        seed = f"{self.cluster}/{self.uid}/{self.attempt}/{self.attempt_try}".encode()
        number = int.from_bytes(blake2b(seed, digest_size=8).digest(), "big")
        return ids.first + number % (ids.end - ids.first)

    @property
    def adopted(self) -> bool:
        """True for the job of an adopted Pod."""
        return self.attempt == ADOPTED_ATTEMPT

    def __str__(self) -> str:
        """Returns the text for `admin_comment`. No part can hold a slash."""
        generation = self.generation and f"/{self.generation}"
        return (
            f"{_KEY_PREFIX}/{self.cluster}/{self.namespace}/{self.name}/{self.uid}"
            f"/{self.attempt}.{self.attempt_try}{generation}"
        )

    @classmethod
    def parse(cls, admin_comment: str) -> Self | None:
        """Returns the key in an `admin_comment`; None for a comment that is no key."""
        match admin_comment.split("/"):
            case [prefix, cluster, namespace, name, uid, numbers, *more] if (
                prefix == _KEY_PREFIX and len(more) <= 1
            ):
                before, _, after = numbers.partition(".")
                attempt, attempt_try = whole_number(before), whole_number(after)
                if attempt is not None and attempt_try is not None:
                    return cls(cluster, namespace, name, uid, attempt, attempt_try, "".join(more))
        return None
