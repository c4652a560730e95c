"""Tests of links: each link on a page, and each link in a message of the code, has a target."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from deploy.local.layout import CHECKOUT
from tests.documentation.pages import PAGES, anchors, links

CODE = sorted(
    path
    for folder in ("deploy", "extender", "kubernetes_client", "node_agent", "service", "wellknown")
    for path in (CHECKOUT / folder).rglob("*")
    if path.is_file() and path.suffix in {".py", ".j2", ".yaml", ".tpl", ".txt", ".sh", ""}
)
NAMED = re.compile(r"\b(?P<page>(?:docs/)[\w/-]+\.md)(?:#(?P<anchor>[\w-]+))?")


def missing(page: Path, link: str) -> str:
    """Returns the missing file or section of a relative link; "" if the target exists."""
    if re.match(r"[a-z][a-z0-9+.-]*:", link):
        return ""
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    if not target.exists():
        return f"{link}: no such file"
    if anchor and target.suffix == ".md" and anchor not in anchors(target):
        return f"{link}: no such section"
    return ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(CHECKOUT)))
def test_each_relative_link_has_a_target(page: Path) -> None:
    assert [what for link in links(page) if (what := missing(page, link))] == []


def test_each_page_named_in_the_code_exists() -> None:
    named = {
        (path.relative_to(CHECKOUT), found[0])
        for path in CODE
        for found in NAMED.finditer(path.read_text(errors="ignore"))
    }
    assert named
    assert [(path, link) for path, link in sorted(named) if missing(CHECKOUT / "README.md", link)] == []


def test_every_page_is_in_the_index() -> None:
    index = CHECKOUT / "docs" / "README.md"
    listed = {(index.parent / link.partition("#")[0]).resolve() for link in links(index)}
    pages = {page for page in PAGES if page.is_relative_to(index.parent)} - {index}
    runbooks = index.parent / "troubleshooting" / "runbooks"
    pages -= {page for page in pages if page.parent == runbooks and page.name != "README.md"}
    assert pages
    assert sorted(pages - listed) == []


def test_readme_links_to_each_section_of_the_index() -> None:
    doors = {link.partition("#")[2] for link in links(CHECKOUT / "docs" / "README.md") if link[0] == "#"}
    assert len(doors) == 4
    assert {f"docs/README.md#{door}" for door in doors} <= {*links(CHECKOUT / "README.md")}


@pytest.mark.parametrize(
    ("link", "what"),
    [
        ("#comparison", ""),
        ("docs/concepts/policy.md#rules", ""),
        ("https://example.com/none", ""),
        ("docs/concepts/policy.md#no-rules", "docs/concepts/policy.md#no-rules: no such section"),
        ("docs/none.md", "docs/none.md: no such file"),
    ],
)
def test_link_without_a_target_is_found(link: str, what: str) -> None:
    assert missing(CHECKOUT / "README.md", link) == what
