"""The command line of `slurm-cluster`: subcommands and their options."""

import json
import os
import socket
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from service.command_line import Output, OutputOption, program
from slurm_cluster.accounts import apply as accounts_command
from slurm_cluster.configuration.configurer import Places
from slurm_cluster.configuration.notices import PodName
from slurm_cluster.configure import Options, print_plan, serve
from slurm_cluster.keys import command as keys_command
from slurm_cluster.keys.secrets import Names
from slurm_cluster.programs import ProgramFailed
from slurm_cluster.published_secrets import command as publish_command
from slurm_cluster.published_secrets.places import Copy, Place
from slurm_cluster.published_secrets.writer import Wanted
from slurm_cluster.topology.commands import app as topology

app = program("slurm-cluster", "Manage the configuration, accounts and keys of Slurm in Kubernetes.")
accounts = typer.Typer(no_args_is_help=True, help="Compare or apply QOS, accounts and users of a file.")
keys = typer.Typer(no_args_is_help=True, help="Manage the keys of auth/slurm and auth/jwt in Secrets.")
app.add_typer(accounts, name="accounts")
app.add_typer(keys, name="keys")
app.add_typer(topology, name="topology")

_ACCOUNT_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_DEFAULT = Options()
_File = Annotated[
    Path, typer.Argument(help="YAML: qos, accounts, users (docs/reference/slurm-configuration.md).")
]
_Cluster = Annotated[str, typer.Option(help="ClusterName; default: the only cluster of slurmdbd.")]
_Patience = Annotated[
    float, typer.Option(help="Maximum wait for slurmdbd to answer.", metavar="SECONDS", min=0)
]
_Namespace = Annotated[
    str, typer.Option(help="Namespace of the Secrets; default: the service account's namespace.")
]
_SlurmKey = Annotated[str, typer.Option(help="Secret with slurm.key and slurm.jwks.")]
_JwtKey = Annotated[str, typer.Option(help="Secret with jwt_hs256.key.")]
_Kubeconfig = Annotated[
    Path | None, typer.Option(help="Path of a kubeconfig file; default: the service account.")
]


@app.command()
def configure(  # noqa: PLR0913, PLR0917 -- typer makes an option of each
    wanted: Annotated[Path, typer.Option(help="Folder of the wanted configuration.")],
    kept: Annotated[
        Path, typer.Option(help="Folder of the last valid configuration, on slurmctld's volume.")
    ],
    running: Annotated[Path, typer.Option(help="Folder of slurmctld's configuration.")] = Path(
        "/etc/slurm"
    ),
    key: Annotated[list[Path] | None, typer.Option(help="Folder with keys; may be repeated.")] = None,
    state: Annotated[
        Path | None, typer.Option(help="Folder of slurmctld's state; default: StateSaveLocation.")
    ] = None,
    accept: Annotated[
        list[str] | None, typer.Option(help="Regular expression of errors to ignore; may be repeated.")
    ] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Print the pending changes, and exit.")] = False,
    within: Annotated[
        float,
        typer.Option(help="Time limit for slurmctld to serve again.", metavar="SECONDS", min=1),
    ] = _DEFAULT.within_s,
    retry: Annotated[
        float,
        typer.Option(
            help="Pause before another try of a rejected configuration.", metavar="SECONDS", min=1
        ),
    ] = 60.0,
    port: Annotated[int, typer.Option(help="Port of /metrics, /healthz and /readyz.")] = _DEFAULT.port,
) -> None:
    """Validate the wanted configuration, and give valid configurations to slurmctld, until SIGTERM."""
    places = Places(wanted, running, kept, tuple(key or ()), state, tuple(accept or ()), retry)
    if plan:
        raise typer.Exit(_print_plan(places))
    pod = PodName(
        os.environ.get("POD_NAMESPACE", ""),
        os.environ.get("POD_NAME", socket.gethostname()),
        os.environ.get("POD_UID", ""),
    )
    raise typer.Exit(serve(places, Options(within_s=within, port=port, pod=pod)))


def _print_plan(places: Places) -> int:
    try:
        lines, status = print_plan(places)
    except (OSError, ProgramFailed) as error:
        print(f"cannot read the configuration: {error}", file=sys.stderr)
        return 2
    for line in lines:
        print(line)
    return status


@accounts.command("plan")
def accounts_plan(
    file: _File, cluster: _Cluster = "", patience: _Patience = 300.0, output: OutputOption = Output.TABLE
) -> None:
    """Print the differences between slurmdbd and the file. Changes nothing."""
    if output is Output.TABLE:
        raise typer.Exit(accounts_command.plan(file, cluster, patience, print))
    say = partial(print, file=sys.stderr)
    raise typer.Exit(accounts_command.plan(file, cluster, patience, say, _print_changes))


def _print_changes(changes: Sequence[str]) -> None:
    print(json.dumps({"changes": changes}, indent=2))


@accounts.command("apply")
def accounts_apply(file: _File, cluster: _Cluster = "", patience: _Patience = 300.0) -> None:
    """Change slurmdbd to match the file, and print each change."""
    raise typer.Exit(accounts_command.apply(file, cluster, patience, print))


@keys.command("ensure")
def keys_ensure(
    slurm_key: _SlurmKey = "slurm-key",
    jwt_key: _JwtKey = "slurm-jwt-key",
    namespace: _Namespace = "",
    kubeconfig: _Kubeconfig = None,
) -> None:
    """Create missing Secrets of keys. Overwrites no Secret."""
    names = Names(_namespace(namespace), slurm_key, jwt_key)
    raise typer.Exit(keys_command.ensure(names, kubeconfig))


@keys.command("rotate")
def keys_rotate(
    slurm_key: _SlurmKey = "slurm-key",
    jwt_key: _JwtKey = "slurm-jwt-key",
    namespace: _Namespace = "",
    kubeconfig: _Kubeconfig = None,
    jwt: Annotated[bool, typer.Option("--jwt", help="Replace the key of auth/jwt instead.")] = False,
    pause: Annotated[
        float, typer.Option(help="Minimum time between two steps.", metavar="SECONDS", min=0)
    ] = 300.0,
) -> None:
    """Carry out the next step of a rotation of auth/slurm's key: add, use, drop."""
    names = Names(_namespace(namespace), slurm_key, jwt_key)
    raise typer.Exit(keys_command.rotate(names, kubeconfig, jwt=jwt, pause_s=pause))


@app.command("publish-secrets")
def publish_secrets(
    token: Annotated[
        Place | None,
        typer.Option(
            help="Where to write a new token.", metavar="NAMESPACE/SECRET/KEY", parser=Place.parse
        ),
    ] = None,
    lifespan: Annotated[
        int, typer.Option(help="Lifetime of the token.", metavar="SECONDS", min=60)
    ] = 2592000,
    file: Annotated[
        list[Copy] | None,
        typer.Option(
            help="File, and where to write the file; may be repeated.",
            metavar="NAMESPACE/SECRET/KEY=PATH",
            parser=Copy.parse,
        ),
    ] = None,
    patience: Annotated[
        float, typer.Option(help="Maximum wait for slurmctld.", metavar="SECONDS", min=0)
    ] = 300.0,
    kubeconfig: _Kubeconfig = None,
) -> None:
    """Write a token of SlurmUser, and files, to existing Secrets."""
    wanted = Wanted(token, lifespan, tuple(file or ()), patience)
    raise typer.Exit(publish_command.publish(wanted, kubeconfig))


@app.command()
def password(
    place: Annotated[
        Place,
        typer.Argument(
            help="Where to write the password.", metavar="NAMESPACE/SECRET/KEY", parser=Place.parse
        ),
    ],
    kubeconfig: _Kubeconfig = None,
) -> None:
    """Create a Secret with a password if the Secret does not exist."""
    raise typer.Exit(publish_command.ensure_password(place, kubeconfig))


def _namespace(given: str) -> str:
    if given:
        return given
    try:
        return _ACCOUNT_NAMESPACE.read_text().strip()
    except OSError:
        raise typer.BadParameter(
            "is required without a service account", param_hint="--namespace"
        ) from None
