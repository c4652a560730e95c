"""What a Pod is told of the Nodes that kube-scheduler refused to it: which, why, and until when its jobs
may not use them."""

from __future__ import annotations

import re
from dataclasses import replace

from extender.placement.condition_reason import ConditionReason, Due
from extender.placement.placeholder import Placeholder
from wellknown.names import ELSEWHERE, Reason

NODE_REJECTED = Reason.NODE_REJECTED
_NAMED = 3
_OURS = re.compile(rf"\d+ {ELSEWHERE}, |, \d+ {ELSEWHERE}")


def in_its_words(rejection: str) -> str:
    """Returns what kube-scheduler says against Nodes, without what /filter says of all Nodes but the
    allocated one: these were not looked at."""
    return _OURS.sub("", rejection).rstrip(". ")


def why_rejected(record: Placeholder) -> ConditionReason:
    """Returns why an attempt is over: kube-scheduler refused the Node that Slurm had chosen."""
    name, _ = record.rejections.nodes[-1]
    words = f"kube-scheduler refused {name}, which Slurm chose{_said(record)}"
    return ConditionReason(NODE_REJECTED, words, exclusions(record))


def beside(record: Placeholder, cause: ConditionReason) -> ConditionReason:
    """Returns a cause with the Nodes that are excluded meanwhile, which may be why there is no other."""
    if not record.rejections.nodes:
        return cause
    names = ", ".join(name for name, _ in record.rejections.nodes[-_NAMED:])
    last = " (the last)" if len(record.rejections.nodes) > 1 and record.said else ""
    refused = f"kube-scheduler refused {names}{last}{_said(record)}"
    return replace(cause, aside=refused, dues=cause.dues + exclusions(record))


def exclusions(record: Placeholder) -> tuple[Due, ...]:
    """Returns until when Nodes are excluded; of many the last few."""
    return tuple(Due(f"{name} is excluded until", at) for name, at in record.rejections.nodes[-_NAMED:])


def _said(record: Placeholder) -> str:
    return f": {in_its_words(record.said)}" if record.said else ""
