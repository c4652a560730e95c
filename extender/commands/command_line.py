"""The command line of `slurm-extender`: its subcommands and their options.

Every command uses the extender's own settings (SLURM_EXTENDER_*). Exit status: 0 if all is well, 1 if
you have something to fix, 2 if the command, a setting or a file is wrong.
"""

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
_Settle = Annotated[float, typer.Option(help="Differences count after this time.", metavar="SECONDS")]


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
        typer.Option(help="kube-scheduler's file (SLURM_EXTENDER_SCHEDULER_CONFIG_FILE)."),
    ] = None,
    slurmrestd: Annotated[
        str | None, typer.Option(help="slurmrestd's URL (SLURM_EXTENDER_SLURMRESTD_URL).")
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="The file with Slurm's JWT (SLURM_EXTENDER_SLURM_TOKEN_FILE).")
    ] = None,
    kubeconfig: Annotated[
        Path | None, typer.Option(help="The kubeconfig file (SLURM_EXTENDER_KUBECONFIG).")
    ] = None,
    context: Annotated[str | None, typer.Option(help="The kubeconfig's context.")] = None,
) -> None:
    """Say what both systems lack for an installation, each with its fix. Changes nothing."""
    places = Places(slurmrestd, token_file, kubeconfig, context, scheduler_config)
    raise typer.Exit(preflight_command.run(output, places))


@app.command()
def check(  # noqa: PLR0913, PLR0917 -- typer makes an option of each
    output: OutputOption = Output.TABLE,
    namespace: Annotated[str, typer.Option(help="Namespace of the check's Pods.")] = _DEFAULT.namespace,
    image: Annotated[
        str, typer.Option(help="Image of the check's Pods; must run until the check deletes the Pod.")
    ] = _DEFAULT.image,
    cpu: Annotated[str, typer.Option(help="CPU request of the Pod.")] = _DEFAULT.cpu,
    memory: Annotated[str, typer.Option(help="Memory request of the Pod.")] = _DEFAULT.memory,
    device: Annotated[
        list[str] | None, typer.Option(help="Number of devices of the Pod: nvidia.com/gpu=1.")
    ] = None,
    annotation: Annotated[
        list[str] | None, typer.Option(help="Annotation of the Pod, without the prefix: partition=main.")
    ] = None,
    timeout: Annotated[
        float, typer.Option(help="Limit for all steps together.", metavar="SECONDS")
    ] = _DEFAULT.timeout_s,
) -> None:
    """After an install: have Slurm place and end a Pod, and try a Pod that must be rejected."""
    devices, annotations = _pairs(device, "--device"), _pairs(annotation, "--annotation")
    if wrong := [count for count in devices.values() if not count.isdecimal()]:
        raise typer.BadParameter(f"{quoted(wrong[0])} is no number", param_hint="--device")
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
    """Print every difference between both systems, with its cause and its fix. Changes nothing."""
    raise typer.Exit(audit_command.run(output, settle))


@app.command()
def uninstall(
    gates: Annotated[Gates, typer.Option(help="Gates of waiting Pods.")] = Gates.KEEP,
    jobs: Annotated[Jobs, typer.Option(help="Live jobs of Pods.")] = Jobs.KEEP,
    timeout: Annotated[
        float, typer.Option(help="Limit for the leader to give up the Lease.", metavar="SECONDS")
    ] = Choice().timeout_s,
) -> None:
    """After all replicas have stopped: lift the gates of waiting Pods, and end live jobs, by choice."""
    raise typer.Exit(uninstall_command.run(Choice(gates, jobs, timeout)))
