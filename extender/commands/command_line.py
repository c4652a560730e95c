"""The command line of `slurm-extender`: subcommands and their options.

All commands use the extender's settings (SLURM_EXTENDER_*). Exit status: 0 for success, 1 if you
have something to fix, 2 if the command, a setting or a file is wrong."""

from pathlib import Path
from typing import Annotated

import typer

from extender.check.pods import Wish
from extender.commands import audit as audit_command
from extender.commands import check as check_command
from extender.commands import preflight as preflight_command
from extender.commands import uninstall as uninstall_command
from extender.commands.preflight import Places
from extender.commands.uninstall import Choice, Gates, Jobs
from service.command_line import Output, OutputOption, program
from wellknown.quoting import quoted

app = program("slurm-extender", "A kube-scheduler extender that lets Slurm place Kubernetes Pods.")
_DEFAULT = Wish()
_Settle = Annotated[
    float, typer.Option(help="Time that a difference must last to count.", metavar="SECONDS")
]


@app.command()
def serve() -> None:
    """Place Pods, until SIGTERM."""
    from extender.app import main  # noqa: PLC0415 -- no other command needs the server

    main()


@app.command()
def preflight(
    output: OutputOption = Output.TABLE,
    scheduler_config: Annotated[
        Path | None,
        typer.Option(help="kube-scheduler's configuration file (SLURM_EXTENDER_SCHEDULER_CONFIG_FILE)."),
    ] = None,
    slurmrestd: Annotated[
        str | None, typer.Option(help="URL of slurmrestd (SLURM_EXTENDER_SLURMRESTD_URL).")
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="File with Slurm's JWT (SLURM_EXTENDER_SLURM_TOKEN_FILE).")
    ] = None,
    kubeconfig: Annotated[
        Path | None, typer.Option(help="Path of a kubeconfig file (SLURM_EXTENDER_KUBECONFIG).")
    ] = None,
    context: Annotated[str | None, typer.Option(help="Context in the kubeconfig file.")] = None,
) -> None:
    """Report what both systems lack for an installation, with a fix for each problem. Changes
    nothing."""
    places = Places(slurmrestd, token_file, kubeconfig, context, scheduler_config)
    raise typer.Exit(preflight_command.run(output, places))


@app.command()
def check(  # noqa: PLR0913, PLR0917 -- typer makes an option of each
    output: OutputOption = Output.TABLE,
    namespace: Annotated[str, typer.Option(help="Namespace of the check's Pods.")] = _DEFAULT.namespace,
    image: Annotated[
        str, typer.Option(help="Image of the check's Pods; its program must not end by itself.")
    ] = _DEFAULT.image,
    cpu: Annotated[str, typer.Option(help="CPU request of the Pod.")] = _DEFAULT.cpu,
    memory: Annotated[str, typer.Option(help="Memory request of the Pod.")] = _DEFAULT.memory,
    device: Annotated[
        list[str] | None, typer.Option(help="Devices of the Pod: nvidia.com/gpu=1; may be repeated.")
    ] = None,
    annotation: Annotated[
        list[str] | None,
        typer.Option(help="Annotation of the Pod, without prefix: partition=main; may be repeated."),
    ] = None,
    timeout: Annotated[
        float, typer.Option(help="Time limit for all steps together.", metavar="SECONDS")
    ] = _DEFAULT.timeout_s,
) -> None:
    """Test an installation: let Slurm place and end a Pod, and try a Pod that must be refused."""
    devices, annotations = _pairs(device, "--device"), _pairs(annotation, "--annotation")
    if wrong := [count for count in devices.values() if not count.isdecimal()]:
        raise typer.BadParameter(f"{quoted(wrong[0])} is not a number", param_hint="--device")
    counts = {name: int(count) for name, count in devices.items()}
    wish = Wish(namespace, image, cpu, memory, counts, annotations, timeout)
    raise typer.Exit(check_command.run(output, wish))


def _pairs(given: list[str] | None, option: str) -> dict[str, str]:
    pairs = [each.partition("=") for each in given or ()]
    if wrong := [name for name, sign, _ in pairs if not (name and sign)]:
        raise typer.BadParameter(f"{quoted(wrong[0])} is not NAME=VALUE", param_hint=option)
    return {name: value for name, _, value in pairs}


@app.command()
def audit(output: OutputOption = Output.TABLE, settle: _Settle = 5.0) -> None:
    """Print all differences between both systems, with cause and fix. Changes nothing."""
    raise typer.Exit(audit_command.run(output, settle))


@app.command()
def uninstall(
    gates: Annotated[Gates, typer.Option(help="Keep or lift gates of waiting Pods.")] = Gates.KEEP,
    jobs: Annotated[Jobs, typer.Option(help="Keep or end live jobs of Pods.")] = Jobs.KEEP,
    timeout: Annotated[
        float, typer.Option(help="Maximum wait until no replica leads.", metavar="SECONDS")
    ] = Choice().timeout_s,
) -> None:
    """After all replicas have stopped: lift gates of waiting Pods, and end live jobs, as chosen."""
    raise typer.Exit(uninstall_command.run(Choice(gates, jobs, timeout)))
