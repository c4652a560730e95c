"""Replies in JSON, without a detour through a model: what is sent has been built for the wire."""

from __future__ import annotations

from typing import Any

import orjson
from fastapi import Response


def reply(body: Any, status: int = 200) -> Response:
    """Returns a JSON response."""
    return Response(orjson.dumps(body), status, media_type="application/json")
