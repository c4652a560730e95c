"""The entry point of `python -m node_agent`, and of the program node-agent.

The command `run` does not load the modules of the other commands.
"""

import sys

from service.start import loading


def main() -> None:
    """Runs the program."""
    if sys.argv[1:] == ["run"]:
        with loading():
            from node_agent.app import main as run  # noqa: PLC0415 -- see above

        sys.exit(run())
    from node_agent.command_line import app  # noqa: PLC0415 -- see above

    app(prog_name="node-agent")


if __name__ == "__main__":
    main()
