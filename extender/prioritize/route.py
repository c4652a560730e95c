"""/prioritize: constant scores. Slurm has chosen already; the order of a gang's Nodes comes with gangs.

Wire format: k8s.io/kube-scheduler/extender/v1, HostPriorityList, a bare list.
"""

from typing import Any

from pydantic import BaseModel

from service.http_server import Items, Verb


class PrioritizeArgs(BaseModel):
    """ExtenderArgs; only the Nodes' names are read."""

    NodeNames: Items[str] | None = None


def verb() -> Verb:
    """Returns the verb."""

    async def prioritize(body: bytes) -> list[dict[str, Any]]:
        args = PrioritizeArgs.model_validate_json(body)
        return [{"Host": name, "Score": 0} for name in args.NodeNames or ()]

    return prioritize
