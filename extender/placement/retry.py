"""When a placeholder's next effect is due."""

from __future__ import annotations

from typing import NamedTuple


class Retry(NamedTuple):
    """Whether an effect is under way, how the last ones went, and when the next one may be tried."""

    in_flight: bool = False
    """An effect that moves the placeholder on is under way."""
    failures: int = 0
    """How many times in a row its effects failed."""
    not_before: float = 0.0
    """When the next effect may be tried; infinity while it waits for another turn."""
