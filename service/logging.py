"""The log of a program: a JSON object on each line, of limited length."""

import logging
import sys
from datetime import UTC, datetime
from typing import Any

import orjson
import structlog
from structlog.typing import EventDict

_LONGEST_TEXT = 8192


def configure_logging(level: str) -> None:
    """Sets up the log: a JSON object on each line of standard error. `log_fields.about` returns the
    fields for a Pod or job."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            _timed,
            structlog.processors.format_exc_info,
            _short,
            structlog.processors.JSONRenderer(serializer=orjson.dumps, option=orjson.OPT_UTC_Z),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level)),
        logger_factory=structlog.BytesLoggerFactory(sys.stderr.buffer),
        cache_logger_on_first_use=True,
    )


def _timed(_logger: Any, _method: str, event: EventDict) -> EventDict:
    """Adds the time as an object. orjson turns the time into text, in half of Python's time."""
    event["timestamp"] = datetime.now(UTC)
    return event


def _short(_logger: Any, _method: str, event: EventDict) -> EventDict:
    """Cuts long texts, because replies of other systems and requests of any client get into the log."""
    for name, value in event.items():
        if isinstance(value, str) and len(value) > _LONGEST_TEXT:
            event[name] = f"{value[:_LONGEST_TEXT]}... ({len(value)} characters)"
    return event
