"""Types of the extender's settings."""

import re
from decimal import Decimal
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from wellknown.quoting import quoted
from wellknown.resources import parse_quantity

Cpus = Annotated[Decimal, BeforeValidator(parse_quantity)]

_GRES = re.compile(r"[A-Za-z]\w*(?::(?!\d+[KMG]?$)\w[\w.-]*)?", re.ASCII | re.IGNORECASE)


def _is_gres(text: str) -> str:
    """Returns the text if the text is a valid GRES (slurm.conf(5), Gres) or blank. A type must not look
    like a count ("8", "1g")."""
    if text and not _GRES.fullmatch(text):
        raise ValueError("a GRES is a name, like gpu, or a name and a type, like gpu:h100")
    return text


Gres = Annotated[str, AfterValidator(_is_gres)]

Namespace = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]

_CLASS = re.compile(r"([a-z0-9.-]+)=(partition|qos):([^,:=\s]+)", re.ASCII)


def by_priority_class(given: object) -> object:
    """Returns the partition and the QOS of each PriorityClass, from a text like "urgent=qos:fast"."""
    if not isinstance(given, str):
        return given
    mapped: dict[str, dict[str, str]] = {}
    for one in filter(None, (part.strip() for part in given.split(","))):
        found = _CLASS.fullmatch(one)
        if found is None:
            raise ValueError(f"{quoted(one)}: write urgent=partition:high or urgent=qos:fast")
        name, field, value = found.groups()
        if mapped.setdefault(name, {}).setdefault(field, value) != value:
            raise ValueError(f"{name} has two values for its {field}")
    return mapped
