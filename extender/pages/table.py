"""Puts a table that is made from the code into a page, whose text around it is the page's own."""

from __future__ import annotations


def with_table(page: str, begin: str, end: str, table: str) -> str:
    """Returns the page with this table between its two marks, each a line. Raises ValueError where one
    of them is missing."""
    before, begins, rest = page.partition(begin)
    _, ends, after = rest.partition(end)
    if not (begins and ends):
        raise ValueError(f"the page lacks {begin.strip()} or {end.strip()}")
    return before + begin + table + end + after
