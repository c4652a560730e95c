"""Reads pages with a Markdown parser: links, anchors and blocks of code."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

from deploy.local.layout import CHECKOUT

PAGES = sorted(
    page
    for pattern in ("*.md", "docs/**/*.md", "examples/**/*.md", "deploy/**/*.md")
    for page in CHECKOUT.glob(pattern)
)
_ANCHOR = re.compile(r'<a id="([^"]+)">')
_COMMENT = re.compile(r"<!--\s*(.*?)\s*-->", re.DOTALL)
_MARK = re.compile(r"(run by|not run:|file:|run|values)(?: (.+?))?(, all of this section)?")


@dataclass(frozen=True)
class Mark:
    """The mark of a block: a comment before the block says what tests do with the block. Commands have
    the kind `run` (a test of this folder runs them), `run by` (the test is `what`), or `not run` (the
    reason is `what`). Other text has the kind `file` (the name of the file is `what`) or `values`
    (values of the chart)."""

    kind: str
    what: str


@dataclass(frozen=True)
class Block:
    """A block of code with its language ("" if the block names none) and its mark."""

    page: Path
    line: int
    language: str
    text: str
    mark: Mark | None

    def __str__(self) -> str:
        return f"{self.page.relative_to(CHECKOUT)}:{self.line}"


@cache
def _tokens(page: Path) -> tuple[Token, ...]:
    return tuple(MarkdownIt("commonmark").enable("table").parse(page.read_text()))


def _inline(page: Path) -> Iterator[Token]:
    for token in _tokens(page):
        yield from token.children or ()


def links(page: Path) -> Iterator[str]:
    """Yields the targets of a page's links and images."""
    for token in _inline(page):
        target = token.attrGet("href" if token.type == "link_open" else "src")
        if token.type in ("link_open", "image") and target is not None:
            yield str(target)


@cache
def anchors(page: Path) -> frozenset[str]:
    """Returns the anchors of a page: the anchors that GitHub gives to headings, and the anchors that the
    page sets itself."""
    seen: Counter[str] = Counter()
    found = set(_ANCHOR.findall(page.read_text()))
    tokens = _tokens(page)
    for opened, heading in pairwise(tokens):
        if opened.type == "heading_open":
            text = "".join(child.content for child in heading.children or ())
            anchor = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
            found.add(f"{anchor}-{seen[anchor]}" if seen[anchor] else anchor)
            seen[anchor] += 1
    return frozenset(found)


def blocks(page: Path) -> Iterator[Block]:
    """Yields the blocks of code. A mark applies to the next block, or to all blocks until the end of the
    section."""
    mark: Mark | None = None
    section: tuple[int, Mark] | None = None
    level = 0
    for token in _tokens(page):
        if token.type == "heading_open":
            level, mark = int(token.tag[1:]), None
            section = section if section and section[0] < level else None
        elif token.type == "html_block":
            found = _mark_in(token.content)
            if found is not None:
                mark, to_the_end = found
                section = (level, mark) if to_the_end else section
        elif token.type in ("fence", "code_block"):
            line = (token.map or [0])[0] + 1
            stands = mark or (section[1] if section else None)
            yield Block(page, line, token.info.strip(), token.content, stands)
            mark = None


def _mark_in(text: str) -> tuple[Mark, bool] | None:
    """Returns the mark in a comment, and True if the mark applies until the end of the section; None if
    the comment is no mark."""
    comment = _COMMENT.match(text.strip())
    found = _MARK.fullmatch(" ".join(comment[1].split())) if comment else None
    if found is None:
        return None
    kind, what, section = found.groups()
    return Mark(kind.removesuffix(":"), what or ""), section is not None
