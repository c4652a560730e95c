"""/bind: see `binder`.

Wire format: k8s.io/kube-scheduler/extender/v1, ExtenderBindingArgs and ExtenderBindingResult.
"""

from __future__ import annotations

import structlog
from pydantic import BaseModel

from extender.bind.binder import Binder, NotBound, Target
from extender.wire import Verb

log = structlog.get_logger()


class BindArgs(BaseModel):
    """ExtenderBindingArgs."""

    PodName: str
    PodNamespace: str
    PodUID: str
    Node: str


def verb(binder: Binder) -> Verb:
    """Returns the verb."""

    async def bind(body: bytes) -> dict[str, str]:
        args = BindArgs.model_validate_json(body)
        target = Target(args.PodNamespace, args.PodName, args.PodUID, args.Node)
        try:
            await binder.bind(target)
        except NotBound as error:
            pod = f"{target.namespace}/{target.name}"
            inner = error.__cause__ and str(error.__cause__)
            log.warning(
                "not bound", pod=pod, uid=target.uid, node=target.node, why=str(error), inner=inner
            )
            return {"Error": str(error)}
        return {"Error": ""}

    return bind
