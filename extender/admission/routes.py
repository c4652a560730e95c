"""The routes of the admission webhooks."""

from collections.abc import Callable

from fastapi import APIRouter, Request, Response

from extender.routing import VerbRoute, reply
from kubernetes_client.protocol import Manifest

_EVERY_POD = "/every-pod"


def routes_of(path: str, review: Callable[[bytes, bool], Manifest]) -> APIRouter:
    """Returns two routes: the path, and the path with /every-pod at the end. `review` answers the body
    of an AdmissionReview, with True for Namespaces with the label slurm-extender.io/every-pod."""
    routes = APIRouter(route_class=VerbRoute)

    @routes.post(path)
    @routes.post(path + _EVERY_POD)
    async def answer(request: Request) -> Response:
        every_pod = request.scope["path"].endswith(_EVERY_POD)
        return reply(review(await request.body(), every_pod))

    return routes
