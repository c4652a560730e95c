"""Runs one program of the guest as a component of the cluster.

This process lives as long as the program in the guest: it prints the program's output, forwards
SIGTERM and SIGINT, and ends with the program's status. Killing this process kills the program.
SIGSTOP stops only this process.
"""

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from deploy.local.errors import ClusterError
from deploy.local.guest.connection import Connection, Program

_SIGNALLED = 128
"""If a signal ended the program, the exit status is the signal's number plus this offset, as in a
shell."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the program's exit status, or 1 if the program did not start or the guest is gone."""
    given = _parser().parse_args(arguments)
    connection = Connection(given.port)
    try:
        for files in given.put:
            source, _, target = files.partition("=")
            connection.put(Path(source), target)
        with connection.start(given.argv) as program:
            return _follow(program)
    except (ClusterError, OSError) as error:
        print(f"{given.argv[0]}: {error}", file=sys.stderr)
        return 1


def _follow(program: Program) -> int:
    def hand_on(number: int, _frame: FrameType | None) -> None:
        program.signal(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, hand_on)
    status = 1
    for message in program.messages():
        if "status" in message:
            status = int(message["status"])
        else:
            sys.stdout.write(message["output"])
            sys.stdout.flush()
    return _SIGNALLED - status if status < 0 else status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="deploy.local.guest.program", description=__doc__)
    parser.add_argument("port", type=int, help="port of the guest's runner")
    parser.add_argument(
        "--put",
        metavar="SOURCE=TARGET",
        action="append",
        default=[],
        help="first copy a file or folder of this machine into the guest",
    )
    parser.add_argument("argv", nargs="+", help="the program and its arguments, after --")
    return parser


if __name__ == "__main__":
    sys.exit(main())
