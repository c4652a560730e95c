"""The routes of the admission webhooks."""

from collections.abc import Awaitable, Callable

from fastapi import APIRouter, Request, Response

from extender.routing import VerbRoute, reply
from kubernetes_client.protocol import Manifest

_EVERY_POD = "/every-pod"


def routes_of(path: str, review: Callable[[bytes, bool], Awaitable[Manifest]]) -> APIRouter:
    """Returns two routes: the path, and the path with /every-pod at the end. kube-apiserver calls the
    second route for Namespaces with the label slurm-extender.io/every-pod. `review` takes the body of an
    AdmissionReview, and a flag: True for the second route. `review` returns the reply."""
    routes = APIRouter(route_class=VerbRoute)

    @routes.post(path)
    @routes.post(path + _EVERY_POD)
    async def answer(request: Request) -> Response:
        every_pod = request.scope["path"].endswith(_EVERY_POD)
        return reply(await review(await request.body(), every_pod))

    return routes
