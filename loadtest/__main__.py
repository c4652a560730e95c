"""`python -m loadtest COMMAND`: measures the speed and the cost of the extender. `make` runs most
commands."""

import inspect

import typer

from loadtest.report import pages
from loadtest.scenarios.bench import bench, bench_quick
from loadtest.scenarios.compare import compare
from loadtest.scenarios.gangs import bench_gangs
from loadtest.scenarios.load import load
from loadtest.scenarios.profile import profile
from loadtest.scenarios.scale import bench_restart, bench_scale

_STATUS = """

Exit status 0: all budgets of loadtest/budgets.toml are kept. 1: a budget is not kept, or the run is
broken. 2: this machine lacks a prerequisite. 130: the run was interrupted."""

app = typer.Typer(add_completion=False, help=__doc__, no_args_is_help=True)
for _act in (bench, bench_gangs, bench_quick, bench_restart, bench_scale, compare, load, profile):
    _help = inspect.getdoc(_act) or inspect.getdoc(inspect.getmodule(_act))
    app.command(help=f"{_help}{_STATUS}")(_act)
app.command(help=pages.__doc__)(pages.performance_page)

if __name__ == "__main__":
    app()
