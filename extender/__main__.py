"""`python -m extender`, and the program slurm-extender: it serves, or runs one of its commands.

The modules of the commands are loaded where one is asked for: serving does without them.
"""

import sys

_SERVES: tuple[list[str], ...] = ([], ["serve"])


def main() -> None:
    """The program's entry."""
    if sys.argv[1:] in _SERVES:
        from extender.app import main as serve  # noqa: PLC0415 -- see above

        serve()
    else:
        from extender.commands.command_line import app  # noqa: PLC0415 -- see above

        app(prog_name="slurm-extender")


if __name__ == "__main__":
    main()
