"""Tests of the package's licence."""

from __future__ import annotations

import tomllib
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).parent.parent
APACHE_2_0 = "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"
"""SHA-256 of the licence text from apache.org."""


def test_licence_is_the_text_of_apache_2_0_and_the_package_names_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["license"] == "Apache-2.0"
    assert project["license-files"] == ["LICENSE", "NOTICE"]
    assert sha256((ROOT / "LICENSE").read_bytes()).hexdigest() == APACHE_2_0
