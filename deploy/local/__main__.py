"""`python -m deploy.local`: a whole cluster on this machine, for interactive use."""

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, ParamSpec, TypeVar

import typer
from rich.console import Console
from rich.table import Table

from deploy.local.accounting import Account, User, declare
from deploy.local.cluster import Cluster
from deploy.local.errors import ClusterError, MissingPrerequisitesError
from deploy.local.kubernetes.components import EXTENDER_PROGRAM
from deploy.local.layout import CHECKOUT, python
from deploy.local.programs.helm_binary import helm
from deploy.local.progress import Stopwatch
from deploy.local.prometheus import prometheus
from deploy.local.slurm.config import clients
from deploy.local.spec import DEBIAN_SUITES, DEFAULT_RELEASE, KUBERNETES_RELEASES, ClusterSpec, SpecError
from service.command_line import Output, OutputOption

app = typer.Typer(add_completion=False, no_args_is_help=True, help=__doc__)
# Markup is off: logs contain many brackets.
console = Console(highlight=False, soft_wrap=True, markup=False)

P = ParamSpec("P")
R = TypeVar("R")

Directory = Annotated[Path, typer.Option(help="Directory of the cluster.", envvar="CLUSTER_DIRECTORY")]
Release = Annotated[str, typer.Option(help=f"Slurm release: {' or '.join(DEBIAN_SUITES)}.")]
KubernetesRelease = Annotated[
    str,
    typer.Option(
        help=f"Kubernetes release: {' or '.join(KUBERNETES_RELEASES)}."
        " Default: this machine's own if supported, else the newest.",
        envvar="KUBERNETES_RELEASE",
    ),
]
Component = Annotated[str, typer.Argument(help="Name of a component, as in `status`.")]
Guest = Annotated[bool, typer.Option(help="Add a real node: a virtual machine with a kubelet.")]
# Account that `up` creates in a cluster with accounting. The users alice and bob may run jobs under this
# account.
_ACCOUNT = "lab"
_DEFAULT_DIRECTORY = CHECKOUT / "build" / "cluster"


def _explained(command: Callable[P, R]) -> Callable[P, R]:
    """Returns a command that prints a known error without a stack trace and exits. The exit status is 2
    for a missing prerequisite, and 1 for any other known error."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except MissingPrerequisitesError as error:
            for line in error.missing:
                console.print(f"missing: {line}", style="red")
            raise typer.Exit(2) from None
        except (ClusterError, SpecError) as error:
            console.print(f"error: {error}", style="red")
            raise typer.Exit(1) from None

    return run


@app.command()
@_explained
def up(  # noqa: PLR0913 - each parameter is an option
    *,
    directory: Directory = _DEFAULT_DIRECTORY,
    nodes: Annotated[int, typer.Option(help="Nodes with a slurmd.")] = 4,
    external_nodes: Annotated[int, typer.Option(help="Nodes without a slurmd, for tests of scale.")] = 0,
    cpus: Annotated[int, typer.Option(help="CPUs of each node.")] = 8,
    memory: Annotated[int, typer.Option(help="Memory of each node, in MB.")] = 16_000,
    gpus: Annotated[int, typer.Option(help="GPUs of each node.")] = 4,
    release: Release = DEFAULT_RELEASE,
    kubernetes: Annotated[bool, typer.Option(help="With Kubernetes, or Slurm alone.")] = True,
    kubernetes_release: KubernetesRelease = "",
    extender: Annotated[bool, typer.Option(help="With the extender, or kube-scheduler alone.")] = True,
    replicas: Annotated[int, typer.Option(help="Replicas of kube-scheduler and extender.")] = 1,
    accounting: Annotated[bool, typer.Option(help="With slurmdbd and MariaDB.")] = False,
    guest: Guest = False,
) -> None:
    """Start a cluster and leave it running."""
    stopwatch = Stopwatch(console.print)
    spec = ClusterSpec(
        nodes=nodes,
        external_nodes=external_nodes,
        cpus_per_node=cpus,
        memory_mb=memory,
        gpus_per_node=gpus,
        kubernetes=kubernetes,
        kubernetes_release=kubernetes_release,
        extender=extender and kubernetes,
        replicas=replicas,
        accounting=accounting,
        release=release,
        guest=guest,
    )
    cluster = Cluster.up(spec, directory, tied=False, report=stopwatch)
    if spec.accounting:
        declare(cluster, Account(_ACCOUNT), *(User(name, (_ACCOUNT,)) for name in ("alice", "bob")))
    stopwatch("the cluster is up")
    _say_what_to_try(cluster)


@app.command()
@_explained
def down(directory: Directory = _DEFAULT_DIRECTORY) -> None:
    """Stop a cluster. The logs stay."""
    cluster = Cluster.attach(directory)
    cluster.down()
    console.print(f"down; the logs are in {cluster.logs}")


@app.command()
@_explained
def status(directory: Directory = _DEFAULT_DIRECTORY, output: OutputOption = Output.TABLE) -> None:
    """Show the components. Exit status 1 if the cluster or a component does not run."""
    cluster = _running(directory)
    known = cluster.status()
    if output is Output.JSON:
        components = {name: {"pid": each.pid, "ended": each.returncode} for name, each in known.items()}
        console.print(json.dumps({"components": components}, indent=2))
    else:
        table = Table("component", "process", "state")
        for name, component in known.items():
            code = component.returncode
            table.add_row(name, str(component.pid), "running" if code is None else f"ended ({code})")
        console.print(table)
        _say_where_to_look(cluster)
    if any(component.returncode is not None for component in known.values()):
        raise typer.Exit(1)


@app.command()
@_explained
def restart(component: Component, directory: Directory = _DEFAULT_DIRECTORY) -> None:
    """Restart a component. A stopped component is started."""
    _running(directory).restart(component)
    console.print(f"{component} runs again")


@app.command()
@_explained
def stop(component: Component, directory: Directory = _DEFAULT_DIRECTORY) -> None:
    """Stop a component. `restart` starts the component again."""
    _running(directory).stop(component)
    console.print(f"{component} has stopped")


@app.command()
@_explained
def prepare(
    *,
    release: Release = DEFAULT_RELEASE,
    kubernetes: Annotated[bool, typer.Option(help="With Kubernetes, or Slurm alone.")] = True,
    kubernetes_release: KubernetesRelease = "",
    accounting: Annotated[bool, typer.Option(help="With slurmdbd and MariaDB.")] = False,
    guest: Guest = False,
    monitoring: Annotated[bool, typer.Option(help="Also Prometheus, for tests of metrics.")] = False,
) -> None:
    """Download and build what clusters and tests need. No cluster is started."""
    stopwatch = Stopwatch(console.print)
    spec = ClusterSpec(
        release=release,
        kubernetes=kubernetes,
        kubernetes_release=kubernetes_release,
        extender=kubernetes,
        accounting=accounting,
        guest=guest,
    )
    Cluster.prepare(spec, report=stopwatch)
    if kubernetes:
        helm(stopwatch)
    if monitoring:
        prometheus(stopwatch)
    stopwatch("all programs are ready")


def _running(directory: Path) -> Cluster:
    """Returns the cluster in the directory. Raises ClusterError if the cluster does not run."""
    cluster = Cluster.attach(directory)
    if not cluster.is_up():
        raise ClusterError(f"the cluster in {cluster.directory} is not running")
    return cluster


def _say_what_to_try(cluster: Cluster) -> None:
    spec = cluster.spec
    extender = [EXTENDER_PROGRAM] if spec.extender else []
    programs = [*(["kubectl"] if spec.kubernetes else []), *extender, *clients(spec)]
    console.print(f"  programs    PATH={cluster.directory / 'bin'}:$PATH  ({', '.join(programs)})")
    console.print("              SLURM_AS=alice (or bob) runs Slurm's programs as that user")
    if cluster.spec.kubernetes:
        console.print(f"  KUBECONFIG  {cluster.kubeconfig}")
    console.print(f"  slurmrestd  {cluster.slurmrestd_url}  (token in {cluster.token_file})")
    _say_where_to_look(cluster)
    console.print(f"  logs        {cluster.logs}")
    console.print(f"  to stop     {python()} -m deploy.local down --directory {cluster.directory}")


def _say_where_to_look(cluster: Cluster) -> None:
    for name, (readyz, metrics) in cluster.probes.items():
        console.print(f"  {name:11} {readyz}  {metrics}")


if __name__ == "__main__":
    app()
