"""Tests of README's first commands: the commands work in a clone of the project, with only the committed
files."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from deploy.local.layout import CHECKOUT
from extender.pod_request.annotations import PUBLISHED
from tests.documentation.commands import commands, words
from tests.documentation.pages import blocks


def test_readme_leads_from_git_clone_to_make_demo(tmp_path: Path) -> None:
    block = next(block for block in blocks(CHECKOUT / "README.md") if "git clone" in block.text)
    typed = [words(command.text) for command in commands(block)]
    assert [command[:2] for command in typed] == [["git", "clone"], ["make", "demo"]]
    address = typed[0][2]
    assert PUBLISHED.startswith(f"{address}/")
    script = block.text.replace("make demo", "make --dry-run demo")
    here = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": f"url.file://{CHECKOUT}.insteadOf"}
    done = subprocess.run(
        ["sh", "-e", "-c", script],
        cwd=tmp_path,
        env=os.environ | here | {"GIT_CONFIG_VALUE_0": address},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "-m deploy.local.demo" in done.stdout
