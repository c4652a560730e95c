"""Sentences of pages, Python modules, and files with comments after `#`."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.token import Token

_MARKDOWN: Final = MarkdownIt("commonmark").enable("table")
_END: Final = re.compile(r"(?<=[.!?:])\s+|\n\s*\n|\n\s*[-*] ")
_SHORT: Final = 3
"""Least number of words of a sentence: shorter pieces are labels and cells of tables."""
_FOR_TOOLS: Final = re.compile(r"#\s*(noqa|type:|pragma|!)")
_CODE: Final = re.compile(r"`[^`]*`")
_Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def sentences_of(path: Path) -> list[str]:
    """Returns the sentences of a file, with `CODE` in place of code."""
    text = path.read_text()
    if path.suffix == ".md":
        pieces = _of_page(text)
    elif path.suffix == ".py":
        pieces = chain(_docstrings(text), _comments(text))
    else:
        pieces = _of_yaml(text)
    found = (each.strip() for piece in pieces for each in _END.split(_CODE.sub("CODE", piece)))
    return [each for each in found if len(each.split()) >= _SHORT]


def _of_page(text: str) -> Iterator[str]:
    """Yields paragraphs, list items and cells. Leaves out headings and blocks of code."""
    heading = False
    for token in _MARKDOWN.parse(text):
        if token.type in ("heading_open", "heading_close"):
            heading = token.type == "heading_open"
        elif token.type == "inline" and not heading:
            yield "".join(_words(each) for each in token.children or ())


def _words(token: Token) -> str:
    if token.type == "code_inline":
        return "CODE"
    return " " if token.type in ("softbreak", "hardbreak") else token.content


def _docstrings(text: str) -> Iterator[str]:
    """Yields docstrings, and texts below attributes."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, _Documented):
            continue
        if docstring := ast.get_docstring(node):
            yield docstring
        for statement, below in zip(node.body, node.body[1:], strict=False):
            is_text = isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
            if isinstance(statement, ast.Assign | ast.AnnAssign) and is_text:
                yield str(below.value.value)  # type: ignore[attr-defined]


def _comments(text: str) -> Iterator[str]:
    """Yields the comments of a module, each block of lines as one text."""
    comments, line = list[str](), 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type != tokenize.COMMENT or _FOR_TOOLS.match(token.string):
            continue
        if comments and token.start[0] != line + 1:
            yield " ".join(comments)
            comments = []
        comments.append(token.string.lstrip("# ").partition("# noqa")[0])
        line = token.start[0]
    yield " ".join(comments)


def _of_yaml(text: str) -> Iterator[str]:
    """Yields the comments of a YAML file, each block of lines as one text."""
    for block in re.split(r"^(?!\s*#).*$", text, flags=re.MULTILINE):
        yield re.sub(r"^\s*#\s?(--)?", "", block, flags=re.MULTILINE)
