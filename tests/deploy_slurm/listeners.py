"""HTTP servers in place of the extender and the node agent, for tests of the scripts of deploy/slurm."""

from __future__ import annotations

from collections.abc import Callable
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import BaseServer, ThreadingMixIn, UnixStreamServer
from threading import Thread

Answer = Callable[[str, Message], tuple[int, str, dict[str, str]]]
"""Function that gets a request's path and headers, and returns the status, the body, and more headers of
the answer."""


class UnixServer(ThreadingMixIn, UnixStreamServer):
    """An HTTP server on a Unix socket."""

    daemon_threads = True


class Listener:
    """Answers HTTP requests in threads until the test calls `close`."""

    def __init__(self, answer: Answer, socket: str = "") -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, body, headers = answer(self.path, self.headers)
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body.encode())

            do_POST = do_GET  # noqa: N815 -- http.server's name

            def log_message(self, *_: object) -> None:
                pass

            def address_string(self) -> str:
                return "local"

        self.server: BaseServer
        if socket:
            self.server = UnixServer(socket, Handler)
        else:
            self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
            self.url = f"http://127.0.0.1:{self.server.server_port}"
        Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
