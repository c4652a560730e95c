"""Slurm's texts of generic resources: "gpu:h100:8(S:0-1),shard:4", "gpu:h100:2(IDX:0,2)",
"shard:2(0/4,2/4)"."""

import re
from collections import Counter
from typing import Final

from wellknown import number_list
from wellknown.quoting import quoted

SHARED: Final = frozenset({"mps", "shard"})
"""Names of GRES for parts of GPUs (gres.c: gres_is_shared_name), which several jobs may share. A part
has the number and the type of the GPU, but Slurm reports no type for a job (24.11, 26.05)."""
_GIVEN = re.compile(r"([^:,()]+)(?::[^,()]+)?\(([^)]*)\)(?:,|$)")
"""One GRES of a job: the name, and the details."""
_PARTS = re.compile(r"([0-9]{1,20})/[0-9]{1,20}", re.ASCII)
"""The numbers of a job's parts and of all parts of a GPU."""
_DETAILS = re.compile(r"\([^)]*\)")
_AMOUNT = re.compile(r"([0-9]+)([KMG]?)", re.ASCII | re.IGNORECASE)
_SCALE = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def parse(text: str) -> list[tuple[str, str, int]]:
    """Returns (name, type, count) of each GRES. The default of the count is 1 (slurm.conf(5) Gres)."""
    parsed = []
    for element in filter(None, _DETAILS.sub("", text).split(",")):
        name, *rest = element.split(":")
        amount = _AMOUNT.fullmatch(rest[-1]) if rest else None
        count = int(amount[1]) * _SCALE[amount[2].upper()] if amount else 1
        kind = rest[:-1] if amount else rest
        parsed.append((name, ":".join(kind), count))
    return parsed


def counts(text: str) -> Counter[str]:
    """Returns the counts by name ("gpu") and by name and type ("gpu:h100")."""
    found: Counter[str] = Counter()
    for name, kind, count in parse(text):
        found[name] += count
        if kind:
            found[f"{name}:{kind}"] += count
    return found


def gpus(asked: str) -> int:
    """Returns the number of GPUs in Slurm's text of a request: "gres/gpu:h100:2", "gres/gpu=2"."""
    return counts(asked.replace("gres/", "").replace("gres:", "").replace("=", ":"))["gpu"]


def numbers(text: str) -> dict[str, tuple[int, ...]]:
    """Returns the devices of a job on a node, by name, with Slurm's numbers for that name: of
    "gpu:a100:1(IDX:0),gpu:h100:2(IDX:2-3)" {"gpu": (0, 2, 3)}. Parts have the numbers of the GPUs:
    "shard:2(0/4,2/4)", as in `gres_detail`, and "shard:2(IDX:1)", as in resources/ (26.05), are
    {"shard": (1,)}. Counted GRES ("(CNT:4)") have no numbers. Raises ValueError for another text."""
    found: dict[str, set[int]] = {}
    at = 0
    while at < len(text):
        one = _GIVEN.match(text, at)
        if one is None:
            raise ValueError(f"{quoted(text[at : at + 50])} are no devices of a job")
        which = _which(one[2])
        if which is None:
            raise ValueError(f"{one[0].rstrip(',')} does not say which devices they are")
        found.setdefault(one[1], set()).update(which)
        at = one.end()
    return {name: tuple(sorted(numbers)) for name, numbers in found.items()}


def parts_by_gpu(text: str) -> dict[str, dict[int, int]]:
    """Returns the number of parts that a job on a node has of each GPU, by name and by Slurm's number of
    the GPU: of "shard:3(2/4,0/4,1/4)" {"shard": {0: 2, 2: 1}}. Slurm reports the total alone in
    resources/ (26.05): of "shard:3(IDX:0,2)", which may be any split, the result is an even split."""
    found: dict[str, Counter[int]] = {}
    for each in _GIVEN.finditer(text):
        if each[1] in SHARED:
            found.setdefault(each[1], Counter()).update(_split(parse(each[0])[0][2], each[2]))
    return {name: dict(split) for name, split in found.items()}


def divided(text: str, parts: int) -> list[str]:
    """Returns the devices of a job on a node in equal parts: of "gpu:h100:4(IDX:0-3)" in two parts
    "gpu:h100:2(IDX:0-1)" and "gpu:h100:2(IDX:2-3)". Returns [] if equal parts are impossible: Slurm
    names no devices, or the number of devices is no multiple of `parts`. Shared GPUs are not divided."""
    found = [(match[0], match[2]) for match in _GIVEN.finditer(text)]
    if "".join(whole for whole, _ in found) != text:
        return []
    shares = [_shares(parse(whole)[0], details, parts) for whole, details in found]
    return [",".join(own[part] for own in shares) for part in range(parts)] if all(shares) else []


def _shares(one: tuple[str, str, int], details: str, parts: int) -> list[str]:
    """Returns one GRES in equal parts; [] if equal parts are impossible."""
    (name, kind, count), (how, _, which) = one, details.partition(":")
    if name in SHARED or count % parts or how not in {"IDX", "CNT"}:
        return []
    size = count // parts
    of = f"{name}:{kind}:{size}" if kind else f"{name}:{size}"
    if how == "CNT":
        return [f"{of}(CNT:{size})"] * parts
    numbers = number_list.expand(which)
    cut = [number_list.compress(numbers[part * size : (part + 1) * size]) for part in range(parts)]
    return [f"{of}(IDX:{each})" for each in cut] if len(numbers) == count else []


def _split(count: int, details: str) -> dict[int, int]:
    """Returns the number of parts of each GPU."""
    told = enumerate(_PARTS.fullmatch(each) for each in details.split(","))
    if split := {number: int(part[1]) for number, part in told if part and int(part[1])}:
        return split
    numbers = _which(details) or ()
    share, rest = divmod(count, max(len(numbers), 1))
    return {number: share + (place < rest) for place, number in enumerate(numbers)}


def _which(details: str) -> tuple[int, ...] | None:
    kind, _, which = details.partition(":")
    if kind == "IDX":
        return number_list.expand(which)
    if kind == "CNT":
        return ()
    parts = [_PARTS.fullmatch(each) for each in details.split(",")]
    counts = [int(each[1]) for each in parts if each]
    if len(counts) < len(parts):
        return None
    return tuple(number for number, count in enumerate(counts) if count)
