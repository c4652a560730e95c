"""The extender by a clock that can be set: `python -m tests.end_to_end.stepping_extender`.

SLURM_EXTENDER_CLOCK is a file that holds by how many seconds the time of day is wrong; it may change at
any moment, as when somebody sets a machine's clock. The monotonic clock is another and goes on.
"""

from __future__ import annotations

import datetime as dt
import os
import time
from pathlib import Path

_REAL = time.time
_OFFSET = Path(os.environ.pop("SLURM_EXTENDER_CLOCK"))


class Stepped(dt.datetime):
    """Is asked for the time of day by the whole program."""

    @classmethod
    def now(cls, tz: dt.tzinfo | None = None) -> Stepped:
        return cls.fromtimestamp(stepped(), tz)


def stepped() -> float:
    return _REAL() + float(_OFFSET.read_text())


if __name__ == "__main__":
    dt.datetime = Stepped  # type: ignore[misc]
    time.time = stepped
    from extender.app import main  # it must not have seen the real ones

    main()
