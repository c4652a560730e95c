"""Hooks of mkdocs (mkdocs.yml). The pages are written for GitHub. The hooks change the pages for
Python-Markdown and for the site, and add llms.txt."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from markdown_it import MarkdownIt

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

_COMMON_MARK: Final = MarkdownIt("commonmark")
_ITEM: Final = re.compile(r"(\s*)([-*]|\d+[.)])\s+")
_LINK: Final = re.compile(r"(?P<before>\]\(|^\[[^\]]+\]: )(?P<path>\.\./[^)#\s]+)", re.MULTILINE)
_ROW: Final = re.compile(r"^\| (?P<links>\[.+\)) \| (?P<use>.+) \|$")
_NAMED: Final = re.compile(r"\[(?P<name>[^\]]+)\]\((?P<path>[^)]+)\)")


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, **_: object) -> str:
    """Returns a page with its links and lists in the form that mkdocs needs."""
    source = Path(page.file.abs_src_path or "")
    return indented(to_repository(markdown, source, Path(config.docs_dir), config.repo_url or ""))


def on_post_build(config: MkDocsConfig) -> None:
    """Writes llms.txt into the site."""
    index = (Path(config.docs_dir) / "README.md").read_text()
    (Path(config.site_dir) / "llms.txt").write_text(
        llms_txt(index, config.site_name, config.site_description or "", config.site_url or "")
    )


def to_repository(markdown: str, page: Path, docs: Path, repository: str) -> str:
    """Returns a page in which relative links to files outside of `docs` lead to the repository."""

    def absolute(link: re.Match[str]) -> str:
        target = (page.parent / link["path"]).resolve()
        if target.is_relative_to(docs):
            return link[0]
        kind = "tree" if target.is_dir() else "blob"
        return f"{link['before']}{repository}/{kind}/main/{target.relative_to(docs.parent)}"

    return _LINK.sub(absolute, markdown)


def indented(markdown: str) -> str:
    """Returns a page in which the content of a list's item is indented by four spaces for each level of
    lists. Python-Markdown requires four spaces. CommonMark, and so GitHub, requires the width of the
    item's mark."""
    lines = markdown.split("\n")
    depth, offset = [0] * len(lines), [0] * len(lines)
    for token in _COMMON_MARK.parse(markdown):
        if token.type != "list_item_open" or token.map is None:
            continue
        first, end = token.map
        mark = _ITEM.match(lines[first], offset[first])
        for line in range(first, end):
            if line > first:
                depth[line] += 1
                offset[line] = mark.end() if mark else offset[line]
    return "\n".join(
        " " * 4 * deep + line[min(start, len(line) - len(line.lstrip())) :] if line.strip() else line
        for line, deep, start in zip(lines, depth, offset, strict=True)
    )


def llms_txt(index: str, name: str, description: str, site: str) -> str:
    """Returns the pages that `index` (docs/README.md) lists, in the format of llmstxt.org."""
    lines = [f"# {name}", "", f"> {description}"]
    for line in index.split("\n"):
        if line.startswith("## "):
            lines += ["", line, ""]
        elif row := _ROW.match(line):
            lines += [
                f"- [{link['name']}]({site}{link['path'].replace('README.md', '').replace('.md', '/')}):"
                f" {row['use']}"
                for link in _NAMED.finditer(row["links"])
                if not link["path"].startswith(("..", "#"))
            ]
    return "\n".join(lines) + "\n"
