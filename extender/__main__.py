"""Entry point of `python -m extender`, and of the program slurm-extender.

The command `serve` does not load the modules of the other commands."""

import sys

from service.start import loading


def main() -> None:
    """Runs the program."""
    if sys.argv[1:] == ["serve"]:
        with loading():
            from extender.app import main as serve  # noqa: PLC0415 -- see above

        serve()
    else:
        from extender.commands.command_line import app  # noqa: PLC0415 -- see above

        app(prog_name="slurm-extender")


if __name__ == "__main__":
    main()
