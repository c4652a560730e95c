"""Cuts messages to the allowed length, and has the phrases that several messages share."""

from collections.abc import Sequence

_MOST_CHARACTERS = 1024  # kube-apiserver's limit for an Event, and the extender's limit for a condition
_CUT = "..."
NO_DRA = (
    "Dynamic Resource Allocation does not count, because kube-scheduler would choose other devices than"
    " Slurm"
)
"""Reason why a Pod that requests a device cannot use a Node without an allocatable device
(`node_constraints`)."""
NOT_SERVED = f"this Node has no allocatable device of a requested resource: {NO_DRA}"


def cut(text: str, most: int = _MOST_CHARACTERS) -> str:
    """Returns a text of at most `most` characters. If the text is longer, dots replace the end."""
    if len(text) <= most:
        return text
    return text[: most - len(_CUT)] + _CUT if most > len(_CUT) else ""


def fitted(parts: Sequence[str], least: Sequence[int], most: int = _MOST_CHARACTERS) -> str:
    """Returns the parts as one text of at most `most` characters. If the text is longer, cuts the parts
    with the indices `least`, one after the other."""
    kept = [*parts]
    for index in least:
        over = sum(map(len, kept)) - most
        kept[index] = cut(kept[index], len(kept[index]) - max(over, 0))
    return cut("".join(kept), most)
