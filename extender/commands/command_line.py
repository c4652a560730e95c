"""The command line of `slurm-extender`: its subcommands and their options.

Every command uses the extender's own settings (SLURM_EXTENDER_*). Exit status: 0 where all is well, 1
where something is not, 2 where the command, a setting or a file is wrong.
"""

import sys
from pathlib import Path
from typing import Annotated

import typer

from extender.check.pods import Wish
from extender.commands import audit as audit_command
from extender.commands import check as check_command
from extender.commands import preflight as preflight_command
from extender.commands import uninstall as uninstall_command
from extender.commands.output import Output
from extender.commands.uninstall import Choice, Gates, Jobs

app = typer.Typer(
    name="slurm-extender",
    help="A kube-scheduler extender that lets Slurm place Kubernetes Pods.",
    add_completion=False,
    pretty_exceptions_enable=False,
)
_DEFAULT = Wish()
_Output = Annotated[Output, typer.Option(help="For people, or for programs.")]


@app.callback(invoke_without_command=True)
def without_command(context: typer.Context) -> None:
    """A kube-scheduler extender that lets Slurm place Kubernetes Pods. Without a command it serves."""
    if context.invoked_subcommand is None:
        serve()


@app.command()
def serve() -> None:
    """Place Pods, until SIGTERM."""
    from extender.app import main  # noqa: PLC0415 -- the other commands do without it

    main()


@app.command()
def preflight(
    output: _Output = Output.TABLE,
    scheduler_config: Annotated[
        Path | None,
        typer.Option(help="kube-scheduler's file (SLURM_EXTENDER_SCHEDULER_CONFIG_FILE)."),
    ] = None,
) -> None:
    """Say what both systems lack for an installation, each with its cure. It changes nothing."""
    raise typer.Exit(preflight_command.run(output, scheduler_config))


@app.command()
def check(  # noqa: PLR0913, PLR0917 -- typer makes an option of each
    output: _Output = Output.TABLE,
    namespace: Annotated[str, typer.Option(help="Where its Pods are made.")] = _DEFAULT.namespace,
    image: Annotated[
        str, typer.Option(help="Of its Pods; it has to stay until it is ended.")
    ] = _DEFAULT.image,
    cpu: Annotated[str, typer.Option(help="What the Pod requests.")] = _DEFAULT.cpu,
    memory: Annotated[str, typer.Option(help="What the Pod requests.")] = _DEFAULT.memory,
    device: Annotated[
        list[str] | None, typer.Option(help="What the Pod requests besides: nvidia.com/gpu=1.")
    ] = None,
    annotation: Annotated[
        list[str] | None, typer.Option(help="Of the Pod, without the prefix: partition=main.")
    ] = None,
    timeout: Annotated[
        float, typer.Option(help="For all steps together.", metavar="SECONDS")
    ] = _DEFAULT.timeout_s,
) -> None:
    """Have a Pod placed by Slurm and ended, and another refused: after an install."""
    devices, annotations = _pairs(device, "--device"), _pairs(annotation, "--annotation")
    if wrong := [count for count in devices.values() if not count.isdecimal()]:
        raise typer.BadParameter(f"{wrong[0]!r} is no number", param_hint="--device")
    counts = {name: int(count) for name, count in devices.items()}
    wish = Wish(namespace, image, cpu, memory, counts, annotations, timeout)
    raise typer.Exit(check_command.run(output, wish))


def _pairs(given: list[str] | None, option: str) -> dict[str, str]:
    pairs = [each.partition("=") for each in given or ()]
    if wrong := [name for name, sign, _ in pairs if not (name and sign)]:
        raise typer.BadParameter(f"{wrong[0]!r} is not NAME=VALUE", param_hint=option)
    return {name: value for name, _, value in pairs}


@app.command()
def audit(
    output: _Output = Output.TABLE,
    settle: Annotated[
        float, typer.Option(help="How many seconds a difference must last to count.", metavar="SECONDS")
    ] = 5.0,
) -> None:
    """Print every difference between both systems, with its cause and its cure. It changes nothing."""
    raise typer.Exit(audit_command.run(output, settle))


@app.command()
def uninstall(
    gates: Annotated[Gates, typer.Option(help="Of Pods that wait.")] = Gates.KEEP,
    jobs: Annotated[Jobs, typer.Option(help="Live jobs of Pods.")] = Jobs.KEEP,
    timeout: Annotated[
        float, typer.Option(help="How long a replica may go on leading.", metavar="SECONDS")
    ] = Choice().timeout_s,
) -> None:
    """Once no extender runs, lift the gate of Pods that wait and end live jobs, by choice."""
    raise typer.Exit(uninstall_command.run(Choice(gates, jobs, timeout)))


def audit_alone() -> None:
    """The program slurm-extender-audit."""
    app(["audit", *sys.argv[1:]], prog_name="slurm-extender-audit")
