"""docs/without-helm.md names the commands that the wheel has."""

from __future__ import annotations

import tomllib

from deploy.local.layout import CHECKOUT


def test_the_page_has_every_command_of_the_wheel() -> None:
    page = (CHECKOUT / "docs" / "without-helm.md").read_text()
    scripts = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]["scripts"]
    assert [name for name in scripts if f"`{name}`" not in page] == []


def test_the_file_has_nothing_that_is_for_helm_alone() -> None:
    """An uninstall's Job would end jobs when it is applied."""
    page = (CHECKOUT / "docs" / "without-helm.md").read_text()
    assert " --no-hooks " in page
