"""Tests of how the programs start."""

import gc
import subprocess
import sys

import pytest

from service.start import loading

_PROGRAM = """
import gc, sys
from {program}.__main__ import main
collections = []
gc.callbacks.append(lambda phase, _: collections.append(phase))
try:
    main()
except SystemExit as wrong_settings:
    assert wrong_settings.code == 2
print(collections.count("start"), sys.modules["rich"], gc.isenabled(), gc.get_freeze_count() > 50_000)
"""


@pytest.mark.parametrize("command", [("extender", "serve"), ("node_agent", "run")], ids=" ".join)
def test_start_loads_no_console_and_collects_no_garbage(command: tuple[str, str]) -> None:
    """With Python's default settings, a start would make more than a hundred garbage collections."""
    program, subcommand = command
    script = _PROGRAM.format(program=program)
    run = subprocess.run(
        [sys.executable, "-c", script, subcommand], env={}, capture_output=True, text=True, check=True
    )
    count, *others = run.stdout.split()
    assert int(count) < 20
    assert others == ["None", "True", "True"]


def test_failed_import_enables_garbage_collection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich", None)
    with pytest.raises(ImportError), loading():
        raise ImportError
    assert gc.isenabled()
