"""Options that the command lines of all programs have in common.

Only command lines load this module. Serving programs load neither this module nor typer, to save memory.
"""

from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Final

import typer

_DISTRIBUTION: Final = "slurm-extender"


def release() -> str:
    """Returns the release of the programs."""
    try:
        return version(_DISTRIBUTION)
    except PackageNotFoundError:
        return "(not installed: a checkout)"


def _print_version(context: typer.Context, asked: bool) -> None:
    if asked:
        typer.echo(f"{context.find_root().info_name} {release()}")
        raise typer.Exit


class Output(StrEnum):
    """The form of a command's output."""

    TABLE = "table"
    JSON = "json"


OutputOption = Annotated[
    Output, typer.Option("--output", "-o", help="table: to read; json: for programs.")
]
Version = Annotated[
    bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
]


def program(name: str, about: str, *, completes: bool = True) -> typer.Typer:
    """Returns the command line of a program with subcommands. Without arguments, the program prints
    help. `--version` prints the release. If `completes`, shells can complete commands."""
    app = typer.Typer(
        name=name, no_args_is_help=True, add_completion=completes, pretty_exceptions_enable=False
    )

    @app.callback(help=about)
    def options(_version: Version = False) -> None:
        pass

    return app
