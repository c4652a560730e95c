"""The length of messages, the parts that are cut from a longer one, and words of several messages."""

from collections.abc import Sequence

MOST_TOLD = 1024  # characters of an Event's message in kube-apiserver; a condition's is kept as short
_CUT = "..."
NO_DRA = (
    "Dynamic Resource Allocation does not count, because kube-scheduler would choose other devices than"
    " Slurm"
)
"""Reason why a Node without an allocatable device is closed to Pods that ask for the device
(`node_constraints`)."""
NOT_SERVED = f"this Node has no allocatable device of a requested resource: {NO_DRA}"


def cut(text: str, most: int = MOST_TOLD) -> str:
    """Returns a text of at most so many characters: dots replace the end of a longer one."""
    if len(text) <= most:
        return text
    return text[: most - len(_CUT)] + _CUT if most > len(_CUT) else ""


def fitted(parts: Sequence[str], least: Sequence[int], most: int = MOST_TOLD) -> str:
    """Returns the parts as one text of at most so many characters. If longer, cuts the parts of the
    indices `least`, one after the other."""
    kept = [*parts]
    for index in least:
        over = sum(map(len, kept)) - most
        kept[index] = cut(kept[index], len(kept[index]) - max(over, 0))
    return cut("".join(kept), most)
