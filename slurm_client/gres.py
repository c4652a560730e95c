"""Reads Slurm's texts of generic resources (GRES). Examples are "gpu:h100:8(S:0-1),shard:4",
"gpu:h100:2(IDX:0,2)" and "shard:2(0/4,2/4)"."""

import re
from collections import Counter
from typing import Final

from wellknown import number_list
from wellknown.quoting import quoted

SHARED: Final = frozenset({"mps", "shard"})
"""Names of the GRES that stand for parts of a GPU (gres.c: gres_is_shared_name). Several jobs may share
such a GPU. A part has the number and the type of its GPU. Slurm reports no type for the parts of a job
(24.11, 26.05)."""
_GIVEN = re.compile(r"([^:,()]+)(?::[^,()]+)?\(([^)]*)\)(?:,|$)")
"""Matches one GRES of a job. The groups are the name, and the details in parentheses."""
_PARTS = re.compile(r"([0-9]{1,20})/[0-9]{1,20}", re.ASCII)
"""Matches two numbers, like "2/4": the job's parts of a GPU, and all parts of this GPU."""
_COUNTED = re.compile(r"\(CNT:([0-9]+)\)", re.ASCII)
"""Matches the count of devices without files. Slurm reports this count in the parentheses only, like
"gpu:h100(CNT:8)" (gres_stepmgr.c: gres_stepmgr_job_build_details). A number before the parentheses is
the type, like "gpu:1080(CNT:2)"."""
_DETAILS = re.compile(r"\([^)]*\)")
_AMOUNT = re.compile(r"([0-9]+)([KMG]?)", re.ASCII | re.IGNORECASE)
_SCALE = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def parse(text: str) -> list[tuple[str, str, int]]:
    """Returns (name, type, count) of each GRES. The default count is 1 (slurm.conf(5) Gres)."""
    parsed = []
    for element in filter(None, _DETAILS.sub("", _COUNTED.sub(r":\1", text)).split(",")):
        name, *rest = element.split(":")
        amount = _AMOUNT.fullmatch(rest[-1]) if rest else None
        count = int(amount[1]) * _SCALE[amount[2].upper()] if amount else 1
        kind = rest[:-1] if amount else rest
        parsed.append((name, ":".join(kind), count))
    return parsed


def counts(text: str) -> Counter[str]:
    """Returns the counts, both by name ("gpu") and by name and type ("gpu:h100")."""
    found: Counter[str] = Counter()
    for name, kind, count in parse(text):
        found[name] += count
        if kind:
            found[f"{name}:{kind}"] += count
    return found


def gpus(asked: str) -> int:
    """Returns the number of GPUs in Slurm's text of a request, like "gres/gpu:h100:2" or
    "gres/gpu=2"."""
    return counts(asked.replace("gres/", "").replace("gres:", "").replace("=", ":"))["gpu"]


def numbers(text: str) -> dict[str, tuple[int, ...]]:
    """Returns Slurm's numbers of a job's devices on a node, by name. For example,
    "gpu:a100:1(IDX:0),gpu:h100:2(IDX:2-3)" gives {"gpu": (0, 2, 3)}.

    A part has the number of its GPU. "shard:2(0/4,2/4)", as in `gres_detail`, gives {"shard": (1,)}.
    "shard:2(IDX:1)", as in resources/ (26.05), gives the same. A GRES with only a count ("(CNT:4)") has
    no numbers. Raises ValueError for any other text.
    """
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
    """For each GPU of a node, returns how many parts the job has, by name and by Slurm's number of the
    GPU. For example, "shard:3(2/4,0/4,1/4)" gives {"shard": {0: 2, 2: 1}}. In resources/ (26.05), Slurm
    reports only the total. "shard:3(IDX:0,2)" may stand for any split, so the result is an even
    split."""
    found: dict[str, Counter[int]] = {}
    for each in _GIVEN.finditer(text):
        if each[1] in SHARED:
            found.setdefault(each[1], Counter()).update(_split(parse(each[0])[0][2], each[2]))
    return {name: dict(split) for name, split in found.items()}


def divided(text: str, parts: int) -> list[str]:
    """Divides the devices of a job on a node into equal parts, and leaves out remaining devices. For
    example, "gpu:h100:5(IDX:0-4)" in two parts gives "gpu:h100:2(IDX:0-1)" and "gpu:h100:2(IDX:2-3)".
    Returns [] if equal parts are impossible: the text cannot be read, or the GPUs are shared. If Slurm
    reports only a count ("(CNT:4)"), the count is divided."""
    found = [(match[0], match[2]) for match in _GIVEN.finditer(text)]
    if "".join(whole for whole, _ in found) != text:
        return []
    shares = [_shares(parse(whole)[0], details, parts) for whole, details in found]
    if not all(shares):
        return []
    return [",".join(own[part] for own in shares if own[part]) for part in range(parts)]


def _shares(one: tuple[str, str, int], details: str, parts: int) -> list[str]:
    """Divides one GRES into equal parts: empty texts if there are fewer devices than parts. Returns []
    if equal parts are impossible."""
    (name, kind, count), (how, _, which) = one, details.partition(":")
    size = count // parts
    if name in SHARED or how not in {"IDX", "CNT"}:
        return []
    if not size:
        return [""] * parts
    of = f"{name}:{kind}" if kind else name
    if how == "CNT":
        return [f"{of}(CNT:{size})"] * parts
    numbers = number_list.expand(which)
    cut = [number_list.compress(numbers[part * size : (part + 1) * size]) for part in range(parts)]
    return [f"{of}:{size}(IDX:{each})" for each in cut] if len(numbers) == count else []


def _split(count: int, details: str) -> dict[int, int]:
    """Returns how many parts of each GPU a job has, by the GPU's number."""
    matches = enumerate(_PARTS.fullmatch(each) for each in details.split(","))
    if split := {number: int(part[1]) for number, part in matches if part and int(part[1])}:
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
