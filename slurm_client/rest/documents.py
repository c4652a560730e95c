"""Reads a reply's JSON without blocking the event loop.

A reply with 5,000 nodes has about 10 MB. A parser of the whole text would block all threads, so a
separate thread reads a long list entry by entry.

Slurm accepts any bytes for the name and the comment of a job, and slurmrestd repeats these bytes. Bytes
that are not UTF-8 become U+FFFD, so that a job's owner cannot make the job unreadable.
"""

import asyncio
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import orjson

_LONG: Final = 1 << 18  # bytes that are read within about 5 ms
_LIST: Final = re.compile(r'\s*\{\s*"(\w+)"\s*:\s*\[\s*')
_COMMA: Final = re.compile(r"\s*,\s*")
_entry: Final = json.JSONDecoder().raw_decode

Each = tuple[str, Callable[[Mapping[str, Any]], Any]]
"""The name of a field with a list, and the function that reads each entry."""


async def read(content: bytes, each: Each | None = None) -> dict[str, Any]:
    """Returns the reply's JSON object, or {} for any other content. If `each` is given, its function
    replaces each entry of the list. The entry itself is not kept, because the entries of all nodes would
    take 80 MB."""
    if len(content) < _LONG:
        return _whole(content, each)
    return await asyncio.to_thread(_by_entries, content, each)


def _whole(content: bytes, each: Each | None) -> dict[str, Any]:
    try:
        parsed = _parsed(content)
    except ValueError:
        return {}
    if not isinstance(parsed, dict):
        return {}
    if each is not None and isinstance(parsed.get(each[0]), list):
        parsed[each[0]] = [each[1](entry) for entry in parsed[each[0]]]
    return parsed


def _parsed(content: bytes) -> Any:
    try:
        return orjson.loads(content)
    except ValueError:  # orjson accepts only valid UTF-8
        return orjson.loads(content.decode(errors="replace"))


def _by_entries(content: bytes, each: Each | None) -> dict[str, Any]:
    """Returns the same as `_whole`. If the first field is a list, as in all long replies of slurmrestd,
    other tasks may run between two entries."""
    text = content.decode(errors="replace")
    opening = _LIST.match(text)
    if opening is None:
        return _whole(content, each)
    make = each[1] if each is not None and each[0] == opening[1] else None
    entries, end = list[Any](), opening.end()
    for entry, end in _entries(text, opening.end()):  # noqa: B007 -- end of the last entry
        entries.append(entry if make is None else make(entry))
    try:
        rest: dict[str, Any] = orjson.loads(opening.group() + text[end:])
    except ValueError:  # after an entry came neither the end of the list nor another entry
        return {}
    well_formed = not rest[opening[1]]  # False after a missing comma or a too deep entry
    return rest | {opening[1]: entries} if well_formed else {}


def _entries(text: str, at: int) -> Iterator[tuple[Any, int]]:
    """Yields each entry of a list, and the position of the entry's end. Stops at the first text that is
    no entry."""
    while True:
        try:
            entry, end = _entry(text, at)
        except (ValueError, RecursionError):
            return
        yield entry, end
        comma = _COMMA.match(text, end)
        if comma is None:
            return
        at = comma.end()
