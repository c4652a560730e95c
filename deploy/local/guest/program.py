"""One program of the guest as a component of the cluster: `python -m deploy.local.guest.program --help`.

This process lives as long as the program there: it prints what the program says, hands on SIGTERM and
SIGINT, and ends with its status. Whoever kills this process kills the program. SIGSTOP stops only this
process.
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
"""A shell's: what is added to the number of the signal that ended a program."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the program's exit status; 1 where it could not be started, or the guest is gone."""
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
    parser.add_argument("port", type=int, help="that leads to the guest's runner")
    parser.add_argument(
        "--put",
        metavar="SOURCE=TARGET",
        action="append",
        default=[],
        help="puts a file or folder of this machine into the guest first",
    )
    parser.add_argument("argv", nargs="+", help="the program and its arguments, after --")
    return parser


if __name__ == "__main__":
    sys.exit(main())
