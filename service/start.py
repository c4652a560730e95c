"""The start of a program that runs until SIGTERM."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def loading() -> Iterator[None]:
    """Saves CPU and memory while the program imports modules.

    Python collects no garbage during the imports, and later collections skip the imported objects.
    structlog does not load rich, a library for consoles that takes 4 MB.
    """
    sys.modules.setdefault("rich", None)  # type: ignore[arg-type]
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        gc.enable()
