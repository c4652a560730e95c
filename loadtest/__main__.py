"""`python -m loadtest COMMAND`: how fast the extender is, and what it costs. `make` does most."""

import typer

from loadtest.report import pages
from loadtest.scenarios import bench, bench_quick, compare, load, profile, restart, scale

_STATUS = """

Exit status 0: all budgets of loadtest/budgets.toml are kept; 1: one is not, or the run is broken; 2:
this machine lacks something."""

app = typer.Typer(add_completion=False, help=__doc__, no_args_is_help=True)
for _name, _module, _act in (
    ("bench", bench, bench.bench),
    ("bench-quick", bench_quick, bench_quick.bench_quick),
    ("bench-restart", restart, restart.bench_restart),
    ("bench-scale", scale, scale.bench_scale),
    ("compare", compare, compare.compare),
    ("load", load, load.load),
    ("profile", profile, profile.profile_bursts),
):
    app.command(_name, help=f"{_module.__doc__}{_STATUS}")(_act)
app.command("performance-page", help=pages.__doc__)(pages.performance_page)

if __name__ == "__main__":
    app()
