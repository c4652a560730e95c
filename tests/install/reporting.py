"""Reports the progress of tests that take minutes."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from deploy.local.progress import Report, Stopwatch


def reporter(config: pytest.Config) -> Report:
    """Returns a function that writes a line to the terminal, together with the seconds since the
    start."""
    return Stopwatch(partial(_say, config))


def _say(config: pytest.Config, line: str) -> None:
    terminal: Any = config.pluginmanager.get_plugin("terminalreporter")
    capture: Any = config.pluginmanager.get_plugin("capturemanager")
    with capture.global_and_fixture_disabled():
        terminal.write_line(line)
        terminal.flush()
