"""Runs programs in the guest for the host: one for each connection.

The host sends a line of JSON, {"argv": [...], "input": N}, and then N bytes for the program's
standard input. The runner answers with lines of JSON: {"output": TEXT} for output, standard error
included, and {"status": N} after the program's end, negative for a signal. A line {"signal": N}
from the host is a signal for the program. If the host closes the connection first, the runner kills
the program with its process group.
"""

import codecs
import json
import os
import signal
import socketserver
import subprocess
import threading
from contextlib import suppress

PORT = 7000
_LATE_S = 0.5
"""Longest wait for output after the program's end, because a child of the program may keep the pipe
open."""


class Connection(socketserver.StreamRequestHandler):
    """A connection, for one program."""

    def setup(self) -> None:
        super().setup()
        self._telling = threading.Lock()

    def handle(self) -> None:
        request = json.loads(self.rfile.readline())
        given = self.rfile.read(request["input"])
        try:
            process = subprocess.Popen(
                request["argv"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            self._tell({"output": f"{error}\n"})
            self._tell({"status": 127})
            return
        threading.Thread(target=self._obey, args=(process,), daemon=True).start()
        threading.Thread(target=_feed, args=(process, given), daemon=True).start()
        reader = threading.Thread(target=self._read, args=(process,), daemon=True)
        reader.start()
        status = process.wait()
        reader.join(_LATE_S)
        self._tell({"status": status})

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        with process.stdout:
            while chunk := os.read(process.stdout.fileno(), 65536):
                self._tell({"output": decoder.decode(chunk)})

    def _obey(self, process: subprocess.Popen[bytes]) -> None:
        with suppress(OSError, ValueError):  # the connection failed, or this side closed it
            for line in self.rfile:
                process.send_signal(json.loads(line)["signal"])
        with suppress(ProcessLookupError):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)

    def _tell(self, what: dict[str, object]) -> None:
        with self._telling, suppress(OSError):  # the host no longer listens
            self.wfile.write(json.dumps(what).encode() + b"\n")


def _feed(process: subprocess.Popen[bytes], given: bytes) -> None:
    assert process.stdin is not None
    with suppress(OSError), process.stdin:
        process.stdin.write(given)


class Server(socketserver.ThreadingTCPServer):
    """Listens on all addresses: QEMU forwards ports to the address of the network card."""

    allow_reuse_address = True
    daemon_threads = True


if __name__ == "__main__":
    print("the guest is up", flush=True)
    Server(("", PORT), Connection).serve_forever()
