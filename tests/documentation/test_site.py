"""Tests of the site that mkdocs builds (mkdocs.yml): lists, links, redirects of old addresses,
llms.txt."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from deploy.local.layout import CHECKOUT
from deploy.site.hooks import indented, llms_txt, to_repository

DOCS = CHECKOUT / "docs"
TASKS = sorted((DOCS / "tasks").glob("*.md"))
KINDS = {"concepts", "tasks", "reference", "troubleshooting", "design"}
REPOSITORY = "https://example.com/repository"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("site")
    _built(CHECKOUT / "mkdocs.yml", built)
    return built


def _built(configuration: Path, site: Path) -> None:
    mkdocs: list[str | Path] = [CHECKOUT / ".venv/bin/mkdocs", "build", "--strict", "--site-dir", site]
    subprocess.run(
        [*mkdocs, "--config-file", configuration],
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        check=True,
        capture_output=True,
        text=True,
    )


def _redirects() -> dict[str, str]:
    # Removes the tags of Python objects, which only mkdocs can read.
    text = re.sub(r"!!python/\S+", "", (CHECKOUT / "mkdocs.yml").read_text())
    (redirects,) = (each["redirects"] for each in yaml.safe_load(text)["plugins"] if "redirects" in each)
    old: dict[str, str] = redirects["redirect_maps"]
    return old


def test_a_page_is_in_the_folder_of_its_kind() -> None:
    assert {path.name for path in DOCS.iterdir() if path.is_dir()} == KINDS
    assert [path.name for path in DOCS.glob("*.md")] == ["README.md"]


@pytest.mark.parametrize("page", TASKS, ids=lambda page: page.stem)
def test_task_page_has_before_you_begin_and_verify(page: Path) -> None:
    headings = re.findall(r"^## (.+)$", page.read_text(), re.MULTILINE)
    assert headings[0] == "Before you begin"
    assert "Verify" in headings
    assert "Clean up" in headings or page.stem in ("images", "uninstall", "upgrade")


@pytest.mark.parametrize(("old", "new"), _redirects().items())
def test_old_address_redirects_to_the_new_address(site: Path, old: str, new: str) -> None:
    assert not (DOCS / old).exists()
    page = site / old.removesuffix(".md").removesuffix("index") / "index.html"
    address = new.removesuffix("README.md").removesuffix(".md").rstrip("/")
    assert f"{address}/" in page.read_text()


def test_pages_of_the_former_single_folder_have_redirects() -> None:
    assert len(_redirects()) == 92
    assert {"waiting.md", "pools.md", "node-agent.md", "annotations.md"} <= _redirects().keys()


def test_llms_txt_has_each_page_of_the_index(site: Path) -> None:
    listed = set(re.findall(r"/slurm-extender/([\w/-]+)/", (site / "llms.txt").read_text()))
    pages = {str(page.relative_to(DOCS).with_suffix("")) for page in DOCS.rglob("*.md")}
    missing = {page for page in pages if not page.startswith(("troubleshooting/runbooks", "README"))}
    assert missing - listed == set()
    assert all((site / page / "index.html").exists() for page in listed)


@pytest.mark.parametrize("link", ["b.md", "#none", "icons.svg", "/b/"])
def test_a_broken_link_fails(tmp_path: Path, link: str) -> None:
    """The site has the project's configuration, but without redirects and hooks."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "README.md").write_text(f"# A\n\n[b]({link})\n")
    (tmp_path / "docs" / "icon.svg").write_text("<svg/>")
    own = (CHECKOUT / "mkdocs.yml").read_text()
    own = re.sub(r"hooks:.*\n|  - redirects:\n(    .*\n)+", "", own)
    (tmp_path / "mkdocs.yml").write_text(own)
    with pytest.raises(subprocess.CalledProcessError) as failed:
        _built(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert f"link '{link}'" in failed.value.stderr


def test_link_out_of_the_pages_points_to_the_repository() -> None:
    page = DOCS / "concepts" / "nodes.md"
    text = "[a](../../examples/01-a-pod) [b](../../README.md#try-it) [c](../tasks/install.md)\n\n"
    text += "[d]: ../../check\n"
    assert to_repository(text, page, DOCS, REPOSITORY) == (
        f"[a]({REPOSITORY}/tree/main/examples/01-a-pod) [b]({REPOSITORY}/blob/main/README.md#try-it)"
        f" [c](../tasks/install.md)\n\n[d]: {REPOSITORY}/blob/main/check\n"
    )


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("- a\n  - b\n    c\n- d\n", "- a\n    - b\n        c\n- d\n"),
        ("1. a\n\n   b\n\n       $ c\n", "1. a\n\n    b\n\n        $ c\n"),
        ("- a\n\n      code\n\nb\n\n    code\n", "- a\n\n        code\n\nb\n\n    code\n"),
        (
            "10. a\n    - b\n\n```yaml\n- x:\n  - y\n```\n",
            "10. a\n    - b\n\n```yaml\n- x:\n  - y\n```\n",
        ),
    ],
)
def test_lists_are_indented_by_four_spaces(written: str, read: str) -> None:
    assert indented(written) == read


def test_llms_txt_has_the_links_of_a_row() -> None:
    index = "# D\n\n## Door\n\n| page | use it to |\n|---|---|\n| [a](b/a.md), [c](../c.md) | do x |\n"
    assert llms_txt(index, "n", "d", "https://s/") == (
        "# n\n\n> d\n\n## Door\n\n- [a](https://s/b/a/): do x\n"
    )
