"""What the verbs share on the wire: a Pod as it comes in, and replies that are built already."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import orjson
from fastapi import Request, Response
from pydantic import AfterValidator, BaseModel

Body = TypeVar("Body", bound=BaseModel)


def _is_a_pod(manifest: dict[str, Any]) -> dict[str, Any]:
    """Only what everything here relies on: the API server validates the rest."""
    for part in ("metadata", "spec"):
        if not isinstance(manifest.get(part), dict):
            raise ValueError(f"a Pod has an object {part!r}")  # noqa: TRY004 -- pydantic's word
    return manifest


PodManifest = Annotated[dict[str, Any], AfterValidator(_is_a_pod)]


async def read(request: Request, model: type[Body]) -> Body:
    """Returns a request's body. Raises pydantic's ValidationError, which says which field is wrong.

    The routes that use it are plain ones (`add_route`): of what FastAPI does for a function's arguments
    they need nothing, and it would parse a Pod and thousands of names with the standard library's json.
    """
    return model.model_validate_json(await request.body())


def reply(body: Any, status: int = 200) -> Response:
    """Returns a JSON response."""
    return Response(orjson.dumps(body), status, media_type="application/json")
