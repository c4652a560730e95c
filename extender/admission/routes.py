"""The routes of the admission webhooks."""

from typing import Protocol

from fastapi import APIRouter, Request, Response

from extender.routing import VerbRoute, reply
from kubernetes_client.protocol import Manifest


class Review(Protocol):
    """Answers the body of an AdmissionReview. `every_pod` is True for Namespaces with the label
    slurm-extender.io/every-pod."""

    def __call__(self, body: bytes, *, every_pod: bool) -> Manifest: ...


def routes_of(path: str, review: Review) -> APIRouter:
    """Returns two routes: the path, and the path with /every-pod at the end."""
    routes = APIRouter(route_class=VerbRoute)

    @routes.post(path)
    async def of_asking_pods(request: Request) -> Response:
        return reply(review(await request.body(), every_pod=False))

    @routes.post(f"{path}/every-pod")
    async def of_every_pod(request: Request) -> Response:
        return reply(review(await request.body(), every_pod=True))

    return routes
