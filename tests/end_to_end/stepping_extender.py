"""The extender with an adjustable clock: `python -m tests.end_to_end.stepping_extender`.

The file SLURM_EXTENDER_CLOCK contains the error of the time of day in seconds. The error may change at
any moment, as if an administrator set the machine's clock. The monotonic clock has no error.
"""

from __future__ import annotations

import datetime as dt
import os
import time
from pathlib import Path

_REAL = time.time
_OFFSET = Path(os.environ.pop("SLURM_EXTENDER_CLOCK"))


class Stepped(dt.datetime):
    """Replaces `datetime.datetime` in the whole program: `now` returns the time of day with the
    error."""

    @classmethod
    def now(cls, tz: dt.tzinfo | None = None) -> Stepped:
        return cls.fromtimestamp(stepped(), tz)


def stepped() -> float:
    return _REAL() + float(_OFFSET.read_text())


if __name__ == "__main__":
    dt.datetime = Stepped  # type: ignore[misc]
    time.time = stepped
    from extender.app import main  # import only after the replacement of the clocks

    main()
