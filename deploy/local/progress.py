"""Progress lines with elapsed times, for steps that take minutes."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

# A function that shows one line to the user.
Report = Callable[[str], None]

_BEAT_S: Final = 15.0


def silent(_line: str) -> None:
    """Ignores a line: a Report without output."""


class Stopwatch:
    """Puts the time since the start of the stopwatch in front of each line."""

    def __init__(self, write: Report) -> None:
        self._write = write
        self._begin = time.monotonic()

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._begin

    def __call__(self, line: str) -> None:
        self._write(f"{self.elapsed_s:7.1f} s  {line}")


@contextmanager
def heartbeat(report: Report, describe: Callable[[], str]) -> Iterator[None]:
    """Reports `describe()` every 15 s while the block runs, as a sign of life."""
    over = threading.Event()

    def beat() -> None:
        while not over.wait(_BEAT_S):
            report(describe())

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
