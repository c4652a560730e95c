"""/bind: see `binder`.

Wire format: k8s.io/kube-scheduler/extender/v1, ExtenderBindingArgs and ExtenderBindingResult.
"""

import structlog
from pydantic import BaseModel

from extender.bind.binder import Binder, NotBound, Target
from service.health import Health, common_trouble
from service.http_server import Verb
from wellknown.log_fields import about

log = structlog.get_logger()


class BindArgs(BaseModel):
    """ExtenderBindingArgs."""

    PodName: str
    PodNamespace: str
    PodUID: str
    Node: str


def verb(binder: Binder, health: Health) -> Verb:
    """Returns the verb. A failure whose cause is a known outage is not logged as news."""

    async def bind(body: bytes) -> dict[str, str]:
        args = BindArgs.model_validate_json(body)
        target = Target(args.PodNamespace, args.PodName, args.PodUID, args.Node)
        try:
            await binder.bind(target)
        except NotBound as error:
            cause = error.__cause__
            tell = health.news(common_trouble(cause), log.warning)
            named = about(target, binder.job_of(target))
            tell("not bound", **named, node=target.node, why=str(error), inner=cause and str(cause))
            return {"Error": str(error)}
        return {"Error": ""}

    return bind
