"""What goes on beside a test."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def meanwhile(act: Callable[[], object], every_s: float) -> Iterator[None]:
    """Does something every so many seconds, in a thread, while the block runs. What that raises ends it,
    and is raised after the block: nobody is to take a load that is gone for one that was borne."""
    over, failures = threading.Event(), list[Exception]()

    def run() -> None:
        try:
            while not over.wait(every_s):
                act()
        except Exception as failure:  # noqa: BLE001 -- it is raised below
            failures.append(failure)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    if failures:
        raise failures[0]
