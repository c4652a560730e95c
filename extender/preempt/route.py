"""/preempt: no victims, ever. Slurm preempts.

kube-scheduler would evict a Pod for one that Slurm has not admitted: it asks no filter before.

Wire format: k8s.io/kube-scheduler/extender/v1, ExtenderPreemptionResult.
"""

from __future__ import annotations

from typing import Any

from extender.wire import Verb


def verb() -> Verb:
    """Returns the verb."""

    async def preempt(_: bytes) -> dict[str, Any]:
        return {"NodeNameToMetaVictims": {}}

    return preempt
