"""The network between a control plane on the host and Pods in the guest, without a kube-proxy.

    gateway.py PORT CERTIFICATE [ADDRESS:PORT=HOST:PORT ...]

On PORT, the gateway is an HTTP proxy for CONNECT requests, through which kube-apiserver reaches Pods in
the guest. CERTIFICATE is a file with the proxy's certificate and key; "" means no TLS. Each ADDRESS
becomes an address of the guest. The gateway forwards each connection from ADDRESS:PORT to HOST:PORT. So
Pods reach kube-apiserver at a Service's address.
"""

import asyncio
import ssl
import subprocess
import sys
from asyncio import StreamReader, StreamWriter
from collections.abc import Awaitable, Callable
from contextlib import suppress

Serve = Callable[[StreamReader, StreamWriter], Awaitable[None]]
Place = tuple[str, int]
"""Host and port."""
_CHUNK = 65536


async def relay(reader: StreamReader, writer: StreamWriter, target: Place, first: bytes = b"") -> None:
    """Carries both directions between a connection and a new connection to `target`, until both
    have ended. Writes `first` to the client after the connection to `target` succeeds. Raises
    OSError if the connection to `target` fails."""
    there, back = await asyncio.open_connection(*target)
    writer.write(first)
    try:
        await asyncio.gather(_carry(reader, back), _carry(there, writer))
    finally:
        back.close()


async def _carry(reader: StreamReader, writer: StreamWriter) -> None:
    with suppress(OSError):
        while chunk := await reader.read(_CHUNK):
            writer.write(chunk)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
        else:  # a TLS connection cannot close one direction alone
            writer.close()


async def connect(reader: StreamReader, writer: StreamWriter) -> None:
    """Serves one CONNECT request."""
    method, address, _ = (await reader.readline()).decode().split(" ", 2)
    while (await reader.readline()).strip():
        pass
    if method != "CONNECT":
        writer.write(b"HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\n\r\n")
        return
    try:
        await relay(reader, writer, place(address), b"HTTP/1.1 200 OK\r\n\r\n")
    except OSError:
        writer.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")


def place(text: str) -> Place:
    """Returns host and port of an address. For example, "[::1]:443" becomes ("::1", 443)."""
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


def forward(target: Place) -> Serve:
    """Returns a function that relays connections to `target`."""

    async def serve(reader: StreamReader, writer: StreamWriter) -> None:
        await relay(reader, writer, target)

    return serve


def closed_after(serve: Serve) -> Serve:
    """Returns a function that serves a connection, and then closes the connection, even after an
    error."""

    async def served(reader: StreamReader, writer: StreamWriter) -> None:
        with suppress(OSError, ValueError):
            await serve(reader, writer)
        writer.close()

    return served


def own(address: str) -> None:
    """Adds an address to the guest's loopback interface."""
    subprocess.run(["ip", "address", "replace", f"{address}/32", "dev", "lo"], check=True)


def shown(certificate: str) -> ssl.SSLContext | None:
    """Returns the proxy's TLS context, or None for no TLS."""
    if not certificate:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


async def main(port: str, certificate: str, *forwards: str) -> None:
    proxy = closed_after(connect)
    servers = [await asyncio.start_server(proxy, "", int(port), ssl=shown(certificate))]
    for line in forwards:
        here, _, there = line.partition("=")
        address, own_port = place(here)
        if not address.startswith("127."):
            own(address)
        serve = closed_after(forward(place(there)))
        servers.append(await asyncio.start_server(serve, address, own_port))
    print("the gateway serves", flush=True)
    await asyncio.gather(*(server.serve_forever() for server in servers))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
