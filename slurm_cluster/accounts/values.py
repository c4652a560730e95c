"""Converts sacctmgr's values to canonical forms, so that values can be compared.

For example, sacctmgr prints "mem=16384M" as "mem=16G", 90 minutes as "01:30:00", and TRES in another
order.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final

from wellknown.quoting import quoted

UNSET: Final = ""
_NONE: Final = "-1"
"""Value with which sacctmgr removes a limit."""
_UNITS: Final = {"": 1, "K": 1 / 1024, "M": 1, "G": 1024, "T": 1024**2, "P": 1024**3}
"""Factors of the units of memory; the result is in MB. Counts have the factors in _COUNT_UNITS, which
are powers of 1024 as in sacctmgr's short forms."""
_COUNT_UNITS: Final = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4, "P": 1024**5}
_NUMBER: Final = re.compile(r"(-1|\d+(?:\.\d+)?)([KMGTP]?)", re.IGNORECASE | re.ASCII)
_TIME: Final = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", re.ASCII)
_TRES_NAME: Final = re.compile(
    r"billing|cpu|energy|mem|node|pages|vmem|(?:bb|fs|gres|ic|license)/[\w:.+-]+",
    re.IGNORECASE | re.ASCII,
)


def count(text: str) -> str:
    """Returns a plain number, or UNSET for -1. Raises ValueError for any other text."""
    if text == _NONE:
        return UNSET
    if not re.fullmatch(r"\d+", text, re.ASCII):
        raise ValueError(f"{quoted(text)} is not a number")
    return str(int(text))


def tres(text: str) -> str:
    """Returns sorted TRES, like "gres/gpu=8,mem=1024". Memory is in MB, and TRES with the value -1 are
    left out. Raises ValueError for an invalid text."""
    found: dict[str, str] = {}
    for part in text.split(","):
        name, sign, value = part.strip().partition("=")
        number = _NUMBER.fullmatch(value)
        if not sign or not _TRES_NAME.fullmatch(name) or number is None:
            raise ValueError(f"{quoted(part)} is not TRES=NUMBER, like gres/gpu=8")
        name = name.lower()
        units = _UNITS if name == "mem" else _COUNT_UNITS
        if name in found:
            raise ValueError(f"{name} occurs twice")
        found[name] = str(round(float(number[1]) * units[number[2].upper()]))
    return ",".join(f"{name}={value}" for name, value in sorted(found.items()) if value != _NONE)


def minutes(text: str) -> str:
    """Returns the minutes of a time like 90, 90:00, 1:30:00, 1-0 or 1-01:30:00. Returns UNSET for -1.
    Raises ValueError for any other text."""
    if text == _NONE:
        return UNSET
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError(f"{quoted(text)} is not a time like 90 (minutes) or 1-12:00:00")
    days, first, second, third = found.groups()
    if days is not None:
        hours, left, seconds = int(first), int(second or 0), int(third or 0)
        return str(int(days) * 1440 + hours * 60 + left + -(-seconds // 60))
    if third is not None:
        return str(int(first) * 60 + int(second) + -(-int(third) // 60))
    return str(int(first) + -(-int(second or 0) // 60))


Form = Callable[[str], str]
_ANYWHERE: Final[Mapping[str, Form]] = {
    "GrpJobs": count,
    "GrpJobsAccrue": count,
    "GrpSubmitJobs": count,
    "GrpTRES": tres,
    "GrpTRESMins": tres,
    "GrpTRESRunMins": tres,
    "GrpWall": minutes,
    "MaxTRESMinsPerJob": tres,
    "MaxTRESPerJob": tres,
    "MaxTRESPerNode": tres,
    "MaxWall": minutes,
    "MinPrioThresh": count,
}
OF_QOS: Final[Mapping[str, Form]] = {
    **_ANYWHERE,
    "MaxJobsAccruePerAccount": count,
    "MaxJobsAccruePerUser": count,
    "MaxJobsPerAccount": count,
    "MaxJobsPerUser": count,
    "MaxSubmitJobsPerAccount": count,
    "MaxSubmitJobsPerUser": count,
    "MaxTRESPerAccount": tres,
    "MaxTRESPerUser": tres,
    "MaxTRESRunMinsPerAccount": tres,
    "MaxTRESRunMinsPerUser": tres,
    "MinTRESPerJob": tres,
}
"""Limits of a QOS, by sacctmgr's names."""
OF_ASSOCIATION: Final[Mapping[str, Form]] = {
    **_ANYWHERE,
    "MaxJobs": count,
    "MaxJobsAccrue": count,
    "MaxSubmitJobs": count,
}
"""Limits of an account or a user."""


def names(given: str) -> str:
    """Returns sorted names, separated by commas."""
    return ",".join(sorted(filter(None, (each.strip() for each in given.split(",")))))


_CLEARED_BY_NUMBER: Final = frozenset(
    {"DefaultQOS", "Flags", "LimitFactor", "PreemptExemptTime", "Priority", "UsageThreshold"}
)
_EXEMPT: Final = "PreemptExemptTime"
"""A field in seconds. `argument` writes MINUTES:SECONDS, because sacctmgr would read a plain number as
minutes."""


def argument(name: str, value: str, before: str) -> str:
    """Returns sacctmgr's argument that changes a field from `before` to `value`. If `value` is UNSET,
    the argument is -1 for a limit and for the fields in _CLEARED_BY_NUMBER, and empty for other fields.
    In a list of TRES, each removed TRES gets the value -1."""
    if {**OF_QOS, **OF_ASSOCIATION}.get(name) is tres:
        kept = {part.partition("=")[0] for part in value.split(",")}
        gone = [
            each for part in before.split(",") if (each := part.partition("=")[0]) not in {*kept, ""}
        ]
        return ",".join([*([value] if value else []), *(f"{each}=-1" for each in gone)])
    if value != UNSET:
        return f"{int(value) // 60}:{int(value) % 60:02}" if name == _EXEMPT else value
    return _NONE if name in {**OF_QOS, **OF_ASSOCIATION} or name in _CLEARED_BY_NUMBER else ""
