"""Tests of the requests of a client for a single server."""

import httpx

from service.http.client import Client

NO_HEADERS = httpx.Headers()


async def test_client_sends_an_unchanged_target_after_the_prefix_of_its_url() -> None:
    targets: list[bytes] = []

    def answer(request: httpx.Request) -> httpx.Response:
        targets.append(request.extensions["target"])
        return httpx.Response(200)

    async with Client(
        "https://host/prefix/", httpx.MockTransport(answer), timeout_s=2.0, connect_s=1.0
    ) as client:
        request = client.call("GET", "/a/../%2F?b=c%20d", NO_HEADERS)
        await client.send(request)
    assert targets == [b"/prefix/a/../%2F?b=c%20d"]
    assert request.headers["Host"] == "host"
    assert request.extensions["timeout"] == {"pool": 2.0, "connect": 1.0, "read": 2.0, "write": 2.0}


async def test_client_keeps_no_cookies() -> None:
    transport = httpx.MockTransport(lambda _: httpx.Response(200, headers={"Set-Cookie": "a=b"}))
    async with Client("http://host", transport, timeout_s=1.0, connect_s=2.0) as client:
        await client.send(client.call("GET", "/", NO_HEADERS))
        assert not client.cookies
        assert "Cookie" not in client.call("GET", "/", NO_HEADERS).headers
