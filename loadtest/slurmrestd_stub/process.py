"""The stub as a process of its own, so that what it costs is not the extender's."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from deploy.local.layout import CHECKOUT
from loadtest.crowd import Broken


@contextmanager
def stub(*options: str) -> Iterator[str]:
    """The URL of a stub that runs until the end of the block; `options` are the command's. Raises
    Broken."""
    command = (sys.executable, "-m", "loadtest.slurmrestd_stub", "--port=0", *options)
    with subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            told = process.stdout.readline().split()
            if not told:
                raise Broken("the stub of slurmrestd does not serve")
            yield told[-1]
        finally:
            process.kill()
