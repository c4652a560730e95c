"""Repeats an action in a thread beside a test."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def meanwhile(act: Callable[[], object], every_s: float) -> Iterator[None]:
    """Calls `act` every `every_s` seconds in a thread, while the block runs. An exception of `act` ends
    the calls, and is raised again after the block. Otherwise a test could pass without the planned
    load."""
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
