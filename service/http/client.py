"""httpx's client for short calls to one server."""

from collections.abc import Mapping
from typing import Any

import httpx


class Client(httpx.AsyncClient):
    """A client of a single server, with the same URL for all calls. The client supports no cookies,
    redirects, hooks or auth flows. So a call runs less than half as many Python functions
    (tests/service/test_call_cost.py)."""

    def __init__(
        self, url: str, transport: httpx.AsyncBaseTransport, *, timeout_s: float, connect_s: float
    ) -> None:
        timeout = httpx.Timeout(timeout_s, connect=min(timeout_s, connect_s))
        super().__init__(transport=transport, timeout=timeout)
        self._url = httpx.URL(url)
        self._prefix = self._url.raw_path.rstrip(b"/")

    async def send(self, request: httpx.Request, *, stream: bool = False, **_: Any) -> httpx.Response:
        """Returns the transport's response. If the body does not arrive, closes the response, so that
        the connection goes back to the transport."""
        response = await self._transport.handle_async_request(request)
        response.request = request
        try:
            if not stream:
                await response.aread()
        except BaseException:
            await response.aclose()
            raise
        return response

    def call(
        self,
        method: str,
        target: str,
        headers: httpx.Headers,
        content: bytes | None = None,
        extensions: Mapping[str, Any] | None = None,
    ) -> httpx.Request:
        """Returns a request for `send`. The target is a quoted path, with a query if any."""
        return httpx.Request(
            method,
            self._url,
            headers=headers,
            content=content,
            extensions={
                "target": self._prefix + target.encode(),
                "timeout": self.timeout.as_dict(),
                **(extensions or {}),
            },
        )
