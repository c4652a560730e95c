"""Runs programs in the guest for the host: one for each connection.

The host sends a line of JSON, {"argv": [...], "input": N}, and N bytes, which are the program's standard
input. It gets lines of JSON: {"output": TEXT} as it comes, standard error included, and when the program
has ended {"status": N}, negative for a signal. A line {"signal": N} from the host is a signal for the
program. If the connection is closed first the program is killed, with its process group.
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
"""How long one waits for output after the end: a child that lives on may hold the pipe."""


class Connection(socketserver.StreamRequestHandler):
    """One program."""

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
        with suppress(OSError, ValueError):  # the connection broke, or was closed on our side
            for line in self.rfile:
                process.send_signal(json.loads(line)["signal"])
        with suppress(ProcessLookupError):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)

    def _tell(self, what: dict[str, object]) -> None:
        with self._telling, suppress(OSError):  # nobody listens any more
            self.wfile.write(json.dumps(what).encode() + b"\n")


def _feed(process: subprocess.Popen[bytes], given: bytes) -> None:
    assert process.stdin is not None
    with suppress(OSError), process.stdin:
        process.stdin.write(given)


class Server(socketserver.ThreadingTCPServer):
    """On all addresses: what QEMU forwards comes to the network card's."""

    allow_reuse_address = True
    daemon_threads = True


if __name__ == "__main__":
    print("the guest is up", flush=True)
    Server(("", PORT), Connection).serve_forever()
