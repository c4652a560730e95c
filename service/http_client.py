"""httpx's client for short calls to one server."""

from collections.abc import Mapping
from typing import Any

import httpx


class _NoCookies(httpx.Cookies):
    def extract_cookies(self, response: httpx.Response) -> None:
        """Does nothing."""


_NO_COOKIES = _NoCookies()


class Client(httpx.AsyncClient):
    """A client of one server. A call costs half of `httpx.AsyncClient.request`: without cookies, without
    merged settings, and with one URL for all calls."""

    def __init__(
        self, url: str, transport: httpx.AsyncBaseTransport, *, timeout_s: float, connect_s: float
    ) -> None:
        super().__init__(
            transport=transport, timeout=httpx.Timeout(timeout_s, connect=min(timeout_s, connect_s))
        )
        self._url = httpx.URL(url)
        self._prefix = self._url.raw_path.rstrip(b"/")

    @property  # type: ignore[misc]
    def cookies(self) -> httpx.Cookies:
        """Cookies that stay empty."""
        return _NO_COOKIES

    def call(
        self,
        method: str,
        target: str,
        headers: httpx.Headers,
        content: bytes | None = None,
        extensions: Mapping[str, Any] | None = None,
    ) -> httpx.Request:
        """Returns a request for `send`. The target is a path, and a query if there is one, quoted."""
        return httpx.Request(
            method,
            self._url,
            headers=headers,
            content=content,
            extensions={"target": self._prefix + target.encode(), **(extensions or {})},
        )
